// trainer_buckets.h - the gradient of a step: its order, its memory, and its buckets.
//
// The gradient has an order of its own, the gradient order: that in which the backward pass
// finishes the gradients of tensors. It is the same on all boards that train this model. Buckets
// are ranges of it that a group can sum while the backward pass is still running. With shards the
// buckets are fixed (trainer_shards.h).
#pragma once

#include "runtime/engine/trainer/trainer.h"

// Returns the number of words of the gradient.
size_t cn_trainer_gradient_words(const struct cn_trainer *trainer);

// Returns the first word of the gradient of a tensor, by its index in the layout; SIZE_MAX when it
// has none.
size_t cn_trainer_gradient_place(const struct cn_trainer *trainer, size_t tensor);

// Shows the step's gradient to the host, in gradient order, until the next accumulate, apply or
// discard. The caller may change it in place, as a reduction does.
cn_err cn_trainer_gradients(struct cn_trainer *trainer, float **gradients);

#define CN_TRAINER_BUCKETS 64 // most buckets of a trainer

// Divides the gradient into at most CN_TRAINER_BUCKETS buckets, contiguous ranges in gradient
// order, of at least `words` words each. Open leaves one bucket. With shards `words` has no effect:
// the buckets are those of the shares. Call it between steps: it takes memory. After an error there
// is one bucket; with shards the trainer is then of no use.
cn_err cn_trainer_set_buckets(struct cn_trainer *trainer, size_t words);
uint32_t cn_trainer_bucket_count(const struct cn_trainer *trainer);
size_t cn_trainer_bucket_words(const struct cn_trainer *trainer, uint32_t bucket);

// Receives buckets while the backward pass is still running. The thread that called
// accumulate_last calls ready once for each bucket, in order. data holds the bucket's part of the
// step's gradient, and stays valid as the view of cn_trainer_gradients does.
struct cn_trainer_sink {
    void (*ready)(void *context, uint32_t bucket, float *data, size_t count);
    void *context;
};

// As accumulate, for the last micro-batch of a step: calls ready for each bucket. On CN_OK and on
// CN_EDIVERGED ready was called for all buckets; on other errors perhaps not. A NULL sink is
// allowed.
cn_err cn_trainer_accumulate_last(struct cn_trainer *trainer, const struct cn_batch *batch,
                                  struct cn_metrics *metrics, const struct cn_trainer_sink *sink);

// Lends the gradients' memory as scratch space for one bucket, the largest included. Allowed
// between steps only; call discard before the next step, to clear it.
cn_err cn_trainer_lend_bucket(struct cn_trainer *trainer, float **room);
