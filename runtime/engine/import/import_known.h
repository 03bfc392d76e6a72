// import_known.h - arithmetic on values that are known when the model is read; for import_emit.c.
#pragma once

#include "runtime/engine/import/import_emit.h"

// Position of a walk through dims in the order of memory, with up to three operands.
struct cn_import_walk {
    size_t index[CN_COMBINE_RANK_MAX];
    ptrdiff_t at[3]; // by operand: the element at this index
};

// Moves to the next index. strides are NULL for operands that are not there.
void cn_import_walk_next(struct cn_import_walk *walk, uint32_t rank, const size_t *dims,
                         const ptrdiff_t *const strides[3]);

// Returns whether a known value was computed from the size of an open batch, for which
// CN_GRAPH_BATCH stands.
bool cn_import_known_of_batch(const struct cn_graph *graph, const struct cn_value *value);

// Makes a known value with the dims and batch of like and room for its elements. The caller writes
// them, and calls cn_import_known_keep.
cn_err cn_import_known_room(struct cn_import_node *node, const struct cn_value *like, bool integers,
                            struct cn_value *value);

// Adds a known value to the graph. Nothing may change its elements afterwards: a large value shares
// the memory of an earlier one with the same elements. Layers often compute the same mask each.
cn_err cn_import_known_keep(struct cn_import_node *node, const struct cn_value *value,
                            uint32_t *out);

// Copies elements of from to a value that has room for them, as copy says.
void cn_import_known_copy(const struct cn_graph *graph, const struct cn_value *from,
                          const struct cn_copy *copy, struct cn_value *to);

// Adds the known result of a map.
cn_err cn_import_known_map(struct cn_import_node *node, const struct cn_map *op, uint32_t in,
                           uint32_t *out);

// Makes the elements of the known input 0 at these places of one dimension the node's output. The
// places must lie inside the dimension.
cn_err cn_import_known_gather(struct cn_import_node *node, const struct cn_gather *gather,
                              const struct cn_value *index, const struct cn_value *result);

// Makes the sum, mean, product or extreme of the known input 0 along the marked dims the node's
// output, by the node's op. result has the dims and batch of the output.
cn_err cn_import_known_reduce(struct cn_import_node *node, const bool *marked,
                              const struct cn_value *result);

// Adds the known result of a combination. in is a, b and, with where, the condition.
cn_err cn_import_known_combine(struct cn_import_node *node, const struct cn_combine *op, bool where,
                               const uint32_t in[3], const struct cn_value *like, uint32_t *out);
