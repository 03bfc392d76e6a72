// import_known.h - arithmetic on what is known when the model is read; for import_emit.c.
#pragma once

#include "runtime/engine/import/import_emit.h"

// Goes through dims in the order of memory; at are the places of up to three operands, by strides
// that are NULL for none.
struct cn_import_walk {
    size_t index[CN_COMBINE_RANK_MAX];
    ptrdiff_t at[3];
};

void cn_import_walk_next(struct cn_import_walk *walk, uint32_t rank, const size_t *dims,
                         const ptrdiff_t *const strides[3]);

// Whether a known value was worked out from the size of an open batch, which stands there as
// CN_GRAPH_BATCH.
bool cn_import_known_of_batch(const struct cn_graph *graph, const struct cn_value *value);

// A known value of the dims and batch of like, still without elements and not yet in the graph.
cn_err cn_import_known_room(struct cn_import_node *node, const struct cn_value *like, bool integers,
                            struct cn_value *value);

// Copies elements of from, as copy says, to a value that has room for them.
void cn_import_known_copy(const struct cn_graph *graph, const struct cn_value *from,
                          const struct cn_copy *copy, struct cn_value *to);

cn_err cn_import_known_map(struct cn_import_node *node, const struct cn_map *op, uint32_t in,
                           uint32_t *out);

// Elements of the known x at these places of one of its dimensions, which are inside it.
cn_err cn_import_known_gather(struct cn_import_node *node, const struct cn_gather *gather,
                              const struct cn_value *index, const struct cn_value *result);

// Sum, mean, product or extreme of the known input 0 along the marked dims, by the node's op;
// result has the dims and batch of the output.
cn_err cn_import_known_reduce(struct cn_import_node *node, const bool *marked,
                              const struct cn_value *result);

// in: a, b and, with where, the condition.
cn_err cn_import_known_combine(struct cn_import_node *node, const struct cn_combine *op, bool where,
                               const uint32_t in[3], const struct cn_value *like, uint32_t *out);
