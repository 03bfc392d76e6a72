// gradient_order.h - places gradients in the order in which the backward pass finishes them.
//
// A group reduces gradients in buckets, contiguous ranges in this order, while earlier layers still
// compute. The order follows from the model alone, never from the device or the memory plan, so all
// members of a group have the same.
//
// Neighbours that together have CN_GRANULE_WORDS make a granule. Within a granule the order is that
// of the layout, so that the optimizer still works on long ranges. A model of one granule keeps the
// layout's order throughout; one of which nothing is trained has no granule.
#pragma once

#include "runtime/engine/graph/graph.h"

#define CN_GRANULE_WORDS ((size_t)4096)

struct cn_gradient_order {
    size_t *places;  // owned; by tensor of the layout: first word of its gradient; SIZE_MAX: none
    size_t *ends;    // owned; by granule: words up to its end
    size_t granules; // number of granules
};

// Places the gradients of a graph that has its backward pass, and writes the places to the graph.
// The caller deinits order. CN_ENOMEM; deinit is not needed then.
cn_err cn_gradient_order(struct cn_graph *graph, const struct cn_layout *layout,
                         struct cn_gradient_order *order);
void cn_gradient_order_deinit(struct cn_gradient_order *order);

// Returns the number of words from the start that hold all gradients.
size_t cn_gradient_order_words(const struct cn_gradient_order *order);

// Fills in finished[granule]: the number of calls after which it and all before it are complete.
void cn_gradient_order_finish(const struct cn_gradient_order *order, const struct cn_call *calls,
                              size_t count, size_t *finished);

// Divides the gradients into at most `most` buckets of whole granules, each of at least `words`
// words; a smaller rest joins the last bucket. Returns the number of buckets: 0 if nothing is
// trained. Fills in last[bucket], its last granule; last has room for as many entries as there are
// granules.
uint32_t cn_gradient_order_cut(const struct cn_gradient_order *order, size_t words, uint32_t most,
                               size_t *last);
