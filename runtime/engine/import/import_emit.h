// import_emit.h - what the import_*.c files make results with.
//
// Each of these works out at once what is known (integers, and floats that depend neither on the
// samples nor on a weight), and adds calls for the rest. Operands are values; dims follow NumPy's
// rules; the batch may be in any dimension that all batched operands agree on.
#pragma once

#include "runtime/engine/import/import.h"

static inline bool cn_import_is_known(const struct cn_value *value)
{
    return value->kind == CN_VALUE_SHAPE || value->kind == CN_VALUE_CONST;
}

// Counts what reading the model takes: elements that are worked out or looked through, by
// everything whose time does not follow from the size of the file. CN_ENOTSUP with a line when it
// is too much.
cn_err cn_import_work(const struct cn_import_node *node, size_t elements);

// Elements of a known value.
int64_t cn_import_known_int(const struct cn_graph *graph, const struct cn_value *value, size_t i);
double cn_import_known_float(const struct cn_graph *graph, const struct cn_value *value, size_t i);

// A known value of the dims and batch of like, which is integers if numbers are given. Only one of
// numbers and floats is.
cn_err cn_import_add_known(struct cn_import_node *node, const struct cn_value *like,
                           const int64_t *numbers, const float *floats, uint32_t *out);

// What a call can read: a value of floats, or, for indices, of int32. A known value is put where
// calls find it; the others are converted if they have to be.
cn_err cn_import_as_floats(struct cn_import_node *node, uint32_t value, uint32_t *floats);
cn_err cn_import_as_indices(struct cn_import_node *node, uint32_t value, uint32_t *indices);

// An activation of the dims and batch of like.
cn_err cn_import_add(struct cn_import_node *node, const struct cn_value *like, uint32_t *out);

// A part of a result, copied from a value.
struct cn_import_piece {
    uint32_t from;
    struct cn_copy copy; // the scale is 1
};

// CN_ENOTSUP with a line when strides, which have a sign, cannot count the elements of these dims.
cn_err cn_import_countable(const struct cn_import_node *node, uint32_t rank, const uint64_t *dims);

// A result of the dims and batch of like, put together from pieces; fill is what lies between them,
// NULL when nothing does.
cn_err cn_import_assemble(struct cn_import_node *node, const struct cn_value *like,
                          const float *fill, const struct cn_import_piece *pieces, size_t count,
                          uint32_t *out);

cn_err cn_import_emit_map(struct cn_import_node *node, struct cn_map map, uint32_t in,
                          uint32_t *out);
cn_err cn_import_emit_combine(struct cn_import_node *node, enum cn_combine_kind kind, uint32_t a,
                              uint32_t b, uint32_t *out);
cn_err cn_import_emit_where(struct cn_import_node *node, uint32_t condition, uint32_t a, uint32_t b,
                            uint32_t *out);

// The first result of another op in the node's place; keepdims is 0, and attribute the numbers or
// the first of them, NULL for none.
cn_err cn_import_apply(const struct cn_import_node *node, const char *op, const char *attribute,
                       const int64_t *numbers, size_t count, const uint32_t *in, size_t in_count,
                       uint32_t *out);

// Input 0, where all samples share it, becomes one that each sample has a copy of.
cn_err cn_import_repeat_samples(struct cn_import_node *node);

// A known value that holds the same for each sample of a fixed batch in that dimension becomes one
// that all samples share; others stay.
cn_err cn_import_share_rows(struct cn_import_node *node, uint32_t axis, uint32_t *value);

// Refuses an operand without samples that has so many elements where others have the batch.
cn_err cn_import_refuse_rows(const struct cn_import_node *node, uint64_t size);

// Dims and batch of a result of these operands; CN_ENOTSUP with a line when they do not fit.
cn_err cn_import_broadcast(struct cn_import_node *node, const uint32_t *in, size_t count,
                           struct cn_value *result);

// Strides of an operand along a result's dims of one sample, 0 where it repeats.
void cn_import_broadcast_strides(const struct cn_graph *graph, const struct cn_value *operand,
                                 const struct cn_value *result, size_t *strides);

// Finds the batch again under x's new dims, which hold as many elements as those of from.
// CN_ENOTSUP with a line when the samples would not stay apart.
cn_err cn_import_find_batch(struct cn_import_node *node, const struct cn_value *from,
                            struct cn_value *x);

// An axis as ONNX has it, negative ones from the end.
cn_err cn_import_axis(const struct cn_import_node *node, int64_t axis, uint32_t rank,
                      uint32_t *found);

// The axes of an input or attribute as marks for each dimension.
cn_err cn_import_axes(const struct cn_import_node *node, size_t input, uint32_t rank, bool *marked,
                      size_t *count);

// A matrix without samples as input 0, with rows and columns exchanged; its memory stays.
cn_err cn_import_exchange(struct cn_import_node *node);

// Input 0 repeated to the dims and batch of result.
cn_err cn_import_expand_to(struct cn_import_node *node, struct cn_value *result);

// The mean or sum of all elements of each sample, as what a loss is made of.
cn_err cn_import_reduce_samples(struct cn_import_node *node, enum cn_over_batch kind, uint32_t in,
                                uint32_t *out);

// A fact of the batch: [batch], of the classes [batch, classes]. The same fact is one value.
cn_err cn_import_fact(struct cn_import_node *node, const struct cn_fact *fact, uint32_t *out);

// A sum over the batch becomes a mean of the same value; others stay.
cn_err cn_import_make_mean(struct cn_import_node *node, uint32_t *value);

// Where an operand is the size of an open batch, or a multiple of it, and the other one depends on
// the samples, it becomes the size that the batch has when it is run. CN_ENOTSUP with a line for
// another number that was worked out from the size.
cn_err cn_import_take_size(struct cn_import_node *node, uint32_t *operand, uint32_t other);
