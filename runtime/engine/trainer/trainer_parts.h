// trainer_parts.h - one model cut into parts that different members hold.
//
// A trainer of a part (cn_trainer_config.cut) has the layout of its part, and forward and backward
// in place of accumulate. Several members may hold a share of its state each (trainer_shards.h).
#pragma once

#include "runtime/engine/graph/cut.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_shards.h"
#include "runtime/profile/job.h"

// Imports a model with its loss and its backward pass, as open does, so that a cut can be chosen.
// Initialises graph and layout; the caller deinits both, except after an error. graph borrows from
// onnx and rules. Errors as open.
cn_err cn_trainer_import(const struct cn_onnx *onnx, enum cn_loss loss,
                         const struct cn_rules *rules, struct cn_diag *diag,
                         struct cn_layout *layout, struct cn_graph *graph);

// Chooses a cut into this many parts: the largest part has nearly the least possible work, and
// among such cuts the fewest values travel. It follows from the graph alone. CN_EINVAL with a line
// in diag when the graph has too few places.
cn_err cn_trainer_choose_cut(const struct cn_graph *graph, uint32_t parts, struct cn_diag *diag,
                             struct cn_cut *cut);

// Finds the cut that a job wants: where it names the beginnings of parts as cn_cut_read does, or
// with "" for names as choose_cut. Errors as these.
cn_err cn_trainer_find_cut(const struct cn_graph *graph, const struct cn_layout *layout,
                           const char *names, uint32_t parts, struct cn_diag *diag,
                           struct cn_cut *cut);

// Checks whether a model can be cut as a job wants, and the state of its parts be divided as it
// says. Errors as import, find_cut and open; diag gets lines only with an error.
cn_err cn_trainer_check_cut(const struct cn_onnx *onnx, const struct cn_job *job,
                            struct cn_diag *diag);

// A place where a model may be cut.
struct cn_trainer_place {
    size_t nodes;                 // forward nodes before it
    size_t words, gradient_words; // what a sample sends across it, forward and back
    double work;                  // share of the model's work before it
    struct cn_cut_sums sums;      // what lies before it
};

// Lists at most `most` places, in order, and behind them the whole model: places has count + 1
// entries. If there are more places, it keeps those with few values to send. The caller frees
// *places. CN_ENOMEM.
cn_err cn_trainer_list_places(const struct cn_graph *graph, const struct cn_layout *layout,
                              size_t most, struct cn_trainer_place **places, size_t *count);

// Writes the share of the work of each part and what travels between them, for people.
cn_err cn_trainer_cut_text(const struct cn_graph *graph, const struct cn_cut *cut, char *text,
                           size_t size);

// A micro-batch passes through the parts in order, and its gradient back. Each part of a chain is
// given the same batches by the same numbers, and reads the inputs and labels that its nodes need.
// In a part: set_boundary INPUTS, forward, get_boundary OUTPUTS; later set_boundary
// OUTPUT_GRADIENTS, backward, get_boundary INPUT_GRADIENTS. The first part has no inputs, the last
// no outputs. Several micro-batches may be between forward and backward, each in a slot. The bits
// are those of the whole model if all parts run backward in the order of the micro-batches.
//
// After the last micro-batch: add up the gradients of tensors with several holders, clip, apply in
// all parts or in none. Evaluations use slot 0 in the same way, between steps: set_boundary INPUTS,
// evaluate, get_boundary OUTPUTS.

// Runs forward on one micro-batch, in an empty slot. The last part adds to metrics; the others
// leave metrics as it is. Errors as accumulate; after CN_EDIVERGED the slot holds the micro-batch.
cn_err cn_trainer_forward(struct cn_trainer *trainer, uint32_t slot, const struct cn_batch *batch,
                          struct cn_metrics *metrics);

// Runs backward on the micro-batch of a slot, adds its gradient to the step's, and empties the
// slot. A sink is given for the last micro-batch of a step: ready is then called for each bucket.
cn_err cn_trainer_backward(struct cn_trainer *trainer, uint32_t slot,
                           const struct cn_trainer_sink *sink);

// As forward and backward, from stage 2 on (trainer_shards.h): the members that hold this part
// together exchange weights and gradients in the passes. All of them make the same calls with the
// same `last`, which is true for the last micro-batch of a step: then the share is also summed over
// the replicas. After an error other than CN_EDIVERGED and CN_ERANGE exchanges may still be using
// the trainer's memory.
cn_err cn_trainer_forward_shared(struct cn_trainer *trainer, uint32_t slot,
                                 const struct cn_batch *batch, struct cn_metrics *metrics,
                                 const struct cn_trainer_exchange *exchange);
cn_err cn_trainer_backward_shared(struct cn_trainer *trainer, uint32_t slot,
                                  const struct cn_trainer_exchange *exchange, bool last);

// Returns the words of one sample in a message; 0 where there is none.
size_t cn_trainer_boundary_words(const struct cn_trainer *trainer, enum cn_boundary which);

// Copy a message of samples * boundary_words floats from or to a slot: value after value, and of
// each value sample after sample. Some words may be bits of int32. CN_ERANGE for more samples than
// cn_trainer_config.batch.
cn_err cn_trainer_get_boundary(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                               uint32_t samples, float *message);
cn_err cn_trainer_set_boundary(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                               uint32_t samples, const float *message);

// Returns the parts that hold a tensor, by its index in the layout: bit p for part p. Its owner is
// the part of the lowest bit. 0 without a cut.
uint32_t cn_trainer_holders(const struct cn_trainer *trainer, size_t tensor);

// Returns the index in the layout of the whole model of a tensor of this part.
size_t cn_trainer_whole_tensor(const struct cn_trainer *trainer, size_t tensor);

// Copy between a row of the whole model, whose layout this is, and a row of this part.
// cn_trainer_part_to_row writes only the tensors that this part holds. Without a cut both copy the
// whole row.
void cn_trainer_row_to_part(const struct cn_trainer *trainer, const struct cn_layout *whole,
                            const float *row, float *part);
void cn_trainer_part_to_row(const struct cn_trainer *trainer, const struct cn_layout *whole,
                            const float *part, float *row);

// Clip the gradient of a model in parts. squares returns the sum of squares of gradient / weight
// over the tensors that this part owns; it is not finite if one of its gradients is not, and no
// part may apply then. clip takes the sum over all parts, divides the gradient by weight and scales
// it to cn_rules.clip (formula: cn_hyper.clip), where 0 is no limit; apply then does not divide
// again. Call clip at most once in a step, in all parts or in none.
cn_err cn_trainer_squares(struct cn_trainer *trainer, double weight, double *squares);
cn_err cn_trainer_clip(struct cn_trainer *trainer, double weight, double squares);
