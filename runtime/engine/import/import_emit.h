// import_emit.h - functions that the import_*.c files use to make results.
//
// Each function computes a known result (import.h) at once, and adds calls to the graph for any
// other. Operands are values; dims follow NumPy's broadcasting. The batch may be in any dimension
// on which all batched operands agree. A batch is open when the file leaves its size open; then
// CN_GRAPH_BATCH stands for the size.
#pragma once

#include "runtime/engine/import/import.h"

static inline bool cn_import_is_known(const struct cn_value *value)
{
    return value->kind == CN_VALUE_SHAPE || value->kind == CN_VALUE_CONST;
}

// Counts work of reading the model, in elements computed or searched. Call it for each computation
// whose time is not bounded by the size of the file. CN_ENOTSUP with a line when it is too much.
cn_err cn_import_work(const struct cn_import_node *node, size_t elements);

// Return element i of a known value.
int64_t cn_import_known_int(const struct cn_graph *graph, const struct cn_value *value, size_t i);
double cn_import_known_float(const struct cn_graph *graph, const struct cn_value *value, size_t i);

// Adds a known value with the dims and batch of like. Give its elements in numbers or in floats;
// the other is NULL.
cn_err cn_import_add_known(struct cn_import_node *node, const struct cn_value *like,
                           const int64_t *numbers, const float *floats, uint32_t *out);

// Return a value that a call can read: floats, or int32 for indices. A known value becomes a
// constant; others are converted if necessary.
cn_err cn_import_as_floats(struct cn_import_node *node, uint32_t value, uint32_t *floats);
cn_err cn_import_as_indices(struct cn_import_node *node, uint32_t value, uint32_t *indices);

// Adds an activation with the dims and batch of like.
cn_err cn_import_add(struct cn_import_node *node, const struct cn_value *like, uint32_t *out);

// A part of a result, copied from a value.
struct cn_import_piece {
    uint32_t from;
    struct cn_copy copy; // the scale is 1
};

// Returns CN_ENOTSUP with a line when signed strides cannot count the elements of these dims.
cn_err cn_import_countable(const struct cn_import_node *node, uint32_t rank, const uint64_t *dims);

// Adds a result with the dims and batch of like, assembled from pieces. fill is the number between
// the pieces; NULL when they leave no gap.
cn_err cn_import_assemble(struct cn_import_node *node, const struct cn_value *like,
                          const float *fill, const struct cn_import_piece *pieces, size_t count,
                          uint32_t *out);

// Adds an elementwise result: a map of one operand, a combination of two, or condition ? a : b.
cn_err cn_import_emit_map(struct cn_import_node *node, struct cn_map map, uint32_t in,
                          uint32_t *out);
cn_err cn_import_emit_combine(struct cn_import_node *node, enum cn_combine_kind kind, uint32_t a,
                              uint32_t b, uint32_t *out);
cn_err cn_import_emit_where(struct cn_import_node *node, uint32_t condition, uint32_t a, uint32_t b,
                            uint32_t *out);

// Applies another ONNX op to the values in[] and returns its first result. The op's attribute
// keepdims is 0. attribute names one more attribute; NULL: none. Its value is the numbers, or for a
// single integer the first of them.
cn_err cn_import_apply(const struct cn_import_node *node, const char *op, const char *attribute,
                       const int64_t *numbers, size_t count, const uint32_t *in, size_t in_count,
                       uint32_t *out);

// Replaces input 0, if all samples share it, by one with a copy for each sample.
cn_err cn_import_repeat_samples(struct cn_import_node *node);

// Replaces a known value that repeats the same row for each sample of a fixed batch, along axis, by
// one that all samples share. Other values stay.
cn_err cn_import_share_rows(struct cn_import_node *node, uint32_t axis, uint32_t *value);

// Refuses an operand without samples that has size elements in the dimension where others have the
// batch.
cn_err cn_import_refuse_rows(const struct cn_import_node *node, uint64_t size);

// Fills in dims and batch of a result of these operands. CN_ENOTSUP with a line when they do not
// fit.
cn_err cn_import_broadcast(struct cn_import_node *node, const uint32_t *in, size_t count,
                           struct cn_value *result);

// Fills in the strides of an operand along the result's dims of one sample; 0 where it repeats.
void cn_import_broadcast_strides(const struct cn_graph *graph, const struct cn_value *operand,
                                 const struct cn_value *result, size_t *strides);

// Finds the batch of from under the new dims of x, which hold the same number of elements.
// CN_ENOTSUP with a line when the new dims would mix elements of several samples.
cn_err cn_import_find_batch(struct cn_import_node *node, const struct cn_value *from,
                            struct cn_value *x);

// Returns an axis of ONNX as an index; negative axes count from the end. CN_ENOTSUP when there is
// none.
cn_err cn_import_axis(const struct cn_import_node *node, int64_t axis, uint32_t rank,
                      uint32_t *found);

// Reads the axes of an input or attribute; sets marked for each dimension, and *count to the number
// of axes.
cn_err cn_import_axes(const struct cn_import_node *node, size_t input, uint32_t rank, bool *marked,
                      size_t *count);

// A reduction over axes of a node's first value.
struct cn_import_reduction {
    bool marked[CN_GRAPH_RANK_MAX]; // dimensions that are reduced
    bool nothing;                   // the node leaves its value as it is
    bool keep;                      // reduced dimensions stay, with the size 1
    size_t elements;                // number of values of a sample that become one
    struct cn_value result;         // the value with the shape of the result
};

// Reads which axes a node reduces. Refuses a reduction over the batch.
cn_err cn_import_read_reduction(const struct cn_import_node *node,
                                struct cn_import_reduction *reduction);

// Makes the node's output a view of input 0, a matrix without samples, with rows and columns
// exchanged.
cn_err cn_import_exchange(struct cn_import_node *node);

// Makes the node's output input 0 repeated to the dims and batch of result.
cn_err cn_import_expand_to(struct cn_import_node *node, struct cn_value *result);

// Adds the mean or sum of all elements of each sample, as a value of the whole batch of this kind.
cn_err cn_import_reduce_samples(struct cn_import_node *node, enum cn_over_batch kind, uint32_t in,
                                uint32_t *out);

// Returns a fact as a value: [batch], or [batch, classes] for CN_FACT_CLASSES. Equal facts are one
// value.
cn_err cn_import_fact(struct cn_import_node *node, const struct cn_fact *fact, uint32_t *out);

// Turns a sum over the batch into a mean with the same result; other values stay.
cn_err cn_import_make_mean(struct cn_import_node *node, uint32_t *value);

// Replaces an operand that is the size of an open batch, or a multiple of it, by the size at run
// time, if the other operand depends on the samples. CN_ENOTSUP with a line for any other number
// that was computed from the size.
cn_err cn_import_take_size(struct cn_import_node *node, uint32_t *operand, uint32_t other);

// Refuses a node with an input that was computed from the size of an open batch.
cn_err cn_import_refuse_size(const struct cn_import_node *node);
