// gradient_order.h - where each gradient lies: in the order in which the backward pass finishes
// them.
//
// A group reduces gradients in buckets, contiguous parts of the row, while earlier layers still
// compute. The order follows from the model alone, never from the device or the memory plan, so all
// members of a group have the same.
//
// Neighbours that together have CN_GRANULE_WORDS make a granule. Within one the order is that of
// the layout, so that the optimizer still works on long ranges. A model of one granule keeps the
// layout's places.
#pragma once

#include "runtime/engine/graph/graph.h"

#define CN_GRANULE_WORDS ((size_t)4096)

struct cn_gradient_order {
    size_t *places; // owned; by tensor of the layout: first word of its gradient, SIZE_MAX for none
    size_t *ends;   // owned; of each granule, words
    size_t granules;
};

// Places the gradients of a graph that has its backward pass.
cn_err cn_gradient_order(struct cn_graph *graph, const struct cn_layout *layout,
                         struct cn_gradient_order *order);
void cn_gradient_order_deinit(struct cn_gradient_order *order);

// The words in front that hold gradients; nothing is behind.
size_t cn_gradient_order_words(const struct cn_gradient_order *order);

// The number of calls after which each granule and those before it are complete.
void cn_gradient_order_finish(const struct cn_gradient_order *order, const struct cn_call *calls,
                              size_t count, size_t *finished);

// Cuts the row into buckets of whole granules that together have the words, at most so many; a rest
// that is smaller joins the last bucket. last has room for all granules: of each bucket, its last.
uint32_t cn_gradient_order_cut(const struct cn_gradient_order *order, size_t words, uint32_t most,
                               size_t *last);
