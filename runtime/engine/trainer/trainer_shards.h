// trainer_shards.h - one model that several members hold together.
//
// Members may hold one model, or one part of it (trainer_parts.h), together (ZeRO,
// arXiv:1910.02054). Each then holds a share: of the optimizer's state in stage 1, of the gradient
// too in stage 2, of the weights too in stage 3. Everything else is whole on each member. The stage
// decides which calls are allowed. In this table the names lack cn_trainer_, "whole" is the whole
// row, and "-" is a call that must not be made:
//
//                                        no shards    stage 1      stage 2      stage 3
//   set_share                            not needed   needed       needed       needed
//   accumulate, accumulate_last          yes          yes          -            -
//   gradients, time_ops                  yes          yes          -            -
//   set_buckets                          yes          no effect    no effect    no effect
//   accumulate_shared                    -            -            yes          yes
//   share, share_squares, share_clip     -            -            yes          yes
//   apply looks for values not finite    yes          yes          no: caller   no: caller
//   find_fault names                     a tensor     a tensor     "a share"    "a share"
//   get/set_weights, set_base            whole        whole        whole        share
//   get/set_optimizer, get/set_second    whole        share        share        share
//   share_weights, return_weights        yes          yes          yes          -
//   lend_weights                         sets them    sets them    sets them    lends them
//   evaluate                             yes          yes          yes          lent weights only
//   show_row, hide_row, get/put_part     yes          -            -            -
//
// All other calls are allowed everywhere. A trainer without shards is in stage 1 with one share. A
// trainer of a part has forward and backward in place of accumulate, and forward_shared and
// backward_shared in place of accumulate_shared; squares and clip are its calls below stage 2.
#pragma once

#include "runtime/engine/trainer/trainer_buckets.h"

// A range of words in gradient order, within a bucket. With shards the buckets are fixed, and a
// share has one piece of each bucket, in the order of the buckets; a piece may be empty.
struct cn_trainer_piece {
    size_t first, count;
};

// Makes the pieces this member's share: apply then changes only the values whose gradients lie in
// them, and optimizer state is held for these values alone, in stage 3 weights too. What is held as
// a share is undefined until it is set. CN_ERANGE when the pieces are more than one share of
// cn_trainer_config.shards, or more than CN_TRAINER_BUCKETS.
cn_err cn_trainer_set_share(struct cn_trainer *trainer, const struct cn_trainer_piece *pieces,
                            uint32_t count);

// Returns the ZeRO stage; 1 without shards.
uint32_t cn_trainer_stage(const struct cn_trainer *trainer);

// Returns the bytes that this member holds for the optimizer's state.
uint64_t cn_trainer_state_memory(const struct cn_trainer *trainer);

// Copy the values whose gradients are the words [first, first + count) between a row in layout
// order and a part in gradient order. Words of the part without a value become 0; values of the row
// without a gradient there are left alone.
void cn_trainer_to_gradient_order(const struct cn_trainer *trainer, const float *row, size_t first,
                                  size_t count, float *part);
void cn_trainer_from_gradient_order(const struct cn_trainer *trainer, const float *part,
                                    size_t first, size_t count, float *row);

// The kinds of exchange between members during a pass, in stages 2 and 3.
enum cn_exchange_kind {
    CN_EXCHANGE_GATHER,   // data: a bucket of weights; pieces of the other members are filled in
    CN_EXCHANGE_REDUCE,   // data: a bucket of gradients; this member's piece becomes the sum
    CN_EXCHANGE_REPLICAS, // data: this member's piece; it becomes the sum over the replicas
};

// Exchanges data with the other members. begin starts an exchange of count words at data and
// returns; end waits until the exchange of that ticket is done. All members that hold the model
// together make the same calls in the same order.
struct cn_trainer_exchange {
    cn_err (*begin)(void *context, enum cn_exchange_kind kind, uint32_t bucket, float *data,
                    size_t count, uint64_t *ticket);
    cn_err (*end)(void *context, uint64_t ticket);
    void *context;
};

// Runs one micro-batch in stages 2 and 3. Its gradient is reduced over the members, and this
// member's share of the sum is added to the step's share. last says whether it is the step's last
// micro-batch: then the share is also summed over the replicas. A member that has fewer
// micro-batches than the others passes a NULL batch. CN_ERANGE and CN_EDIVERGED as accumulate.
// After any other error exchanges may still be using the trainer's memory: the caller stops them
// before any other call on this trainer.
cn_err cn_trainer_accumulate_shared(struct cn_trainer *trainer, const struct cn_batch *batch,
                                    struct cn_metrics *metrics,
                                    const struct cn_trainer_exchange *exchange, bool last);

// Shows the gradient of this member's share to the host, in stages 2 and 3, until apply or discard.
// apply uses it as it is, so the caller checks that it is finite.
cn_err cn_trainer_share(struct cn_trainer *trainer, float **share, size_t *count);

// Clip the gradient in stages 2 and 3, where no member has all of it. share_squares returns the sum
// of squares of gradient / weight over this share. share_clip takes the sum over all shares,
// divides the share by weight and scales it to cn_rules.clip (formula: cn_hyper.clip), where 0 is
// no limit; apply then does not divide again. Call share_clip at most once in a step.
cn_err cn_trainer_share_squares(struct cn_trainer *trainer, double weight, double *squares);
cn_err cn_trainer_share_clip(struct cn_trainer *trainer, double weight, double squares);
