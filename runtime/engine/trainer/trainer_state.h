// trainer_state.h - the rows of a trainer's state: weights, base, optimizer, second moment.
//
// Weights and optimizer state are rows of float32 in layout order (cn_trainer_layout). The calls
// below also set and read the counts that belong to them. With shards some calls take or give only
// a share, and some are not allowed: the table is in trainer_shards.h.
#pragma once

#include "runtime/engine/trainer/trainer.h"

// Copies weights and optimizer state (momentum) to or from host memory: rows in layout order, of
// layout->total floats. Where this member holds a share, get fills in only the values of the share
// and leaves the rest of the row as it is; set takes only those. Optimizer state exists only for
// values with a gradient. Weights without a gradient are whole on each member, in stage 3 too.
// Setting weights ends a loan (cn_trainer_lend_weights).
cn_err cn_trainer_get_weights(struct cn_trainer *trainer, float *weights);
cn_err cn_trainer_set_weights(struct cn_trainer *trainer, const float *weights);
cn_err cn_trainer_get_optimizer(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_optimizer(struct cn_trainer *trainer, const float *state); // NULL: zero

// Makes evaluations read a whole row of weights. In stage 3 the row is borrowed until the weights
// are set or NULL is lent, and this member's share is taken from it. In the other stages this sets
// the weights. NULL changes no weights.
cn_err cn_trainer_lend_weights(struct cn_trainer *trainer, const float *weights);

// The rows of a trainer's state.
enum cn_trainer_row {
    CN_TRAINER_WEIGHTS,
    CN_TRAINER_BASE,      // see cn_trainer_set_base
    CN_TRAINER_OPTIMIZER, // momentum
    CN_TRAINER_SECOND,    // second moment
    CN_TRAINER_ROWS       // the number of rows
};

// Returns whether the trainer holds this row: BASE needs a proximal term, SECOND an Adam optimizer.
bool cn_trainer_has_row(const struct cn_trainer *trainer, enum cn_trainer_row row);

// Shows a row of the trainer's state to the host without copying it. Until hide_row make no other
// call on this trainer, except get_part and put_part. The view's order is the trainer's own.
cn_err cn_trainer_show_row(struct cn_trainer *trainer, enum cn_trainer_row row, float **view);
cn_err cn_trainer_hide_row(struct cn_trainer *trainer, enum cn_trainer_row row);

// Copy the values [first, first + count) in layout order between a shown view and a part. In
// OPTIMIZER and SECOND a value that the optimizer does not train reads as 0, and is not written.
void cn_trainer_get_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *view, size_t first, size_t count, float *part);
void cn_trainer_put_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *part, size_t first, size_t count, float *view);

// Shows the weights to the host, which may change them until cn_trainer_return_weights. Do not
// accumulate, evaluate or apply meanwhile.
cn_err cn_trainer_share_weights(struct cn_trainer *trainer, float **weights);
cn_err cn_trainer_return_weights(struct cn_trainer *trainer);

// Returns whether the optimizer has a second moment (Adam, AdamW).
bool cn_trainer_has_second(const struct cn_trainer *trainer);

// Copy the second moment, as get_optimizer and set_optimizer do. Only where there is one.
cn_err cn_trainer_get_second(struct cn_trainer *trainer, float *state);
cn_err cn_trainer_set_second(struct cn_trainer *trainer, const float *state); // NULL: zero

// Sets the weights that the proximal term pulls to; without such a term it does nothing.
cn_err cn_trainer_set_base(struct cn_trainer *trainer, const float *weights);

// Sets the number of the next step in the schedule, and the number of updates in the optimizer's
// state (Adam's t). Both start at 0. Each step that is applied adds 1 to both; a float16 step that
// is dropped for overflow adds 1 to the step only.
void cn_trainer_set_step(struct cn_trainer *trainer, uint64_t step, uint64_t updates);
uint64_t cn_trainer_updates(const struct cn_trainer *trainer);

// The scale of the loss that the next step starts with: float16 only, zeros elsewhere. Setting
// zeros leaves the device's scale as it is.
struct cn_loss_scale cn_trainer_loss_scale(const struct cn_trainer *trainer);
void cn_trainer_set_loss_scale(struct cn_trainer *trainer, struct cn_loss_scale scale);
