// trainer_part_shares.c - trains one part of a model of which this member holds a share, in stages
// 2 and 3.
//
// A pass runs in segments, as that of a whole model does (trainer_shards.c). Only backward passes
// complete gradients, so each of them adds the sums of its micro-batch to the share.
#include "runtime/engine/trainer/trainer_private.h"

cn_err cn_trainer_forward_shared(struct cn_trainer *trainer, uint32_t slot,
                                 const struct cn_batch *batch, struct cn_metrics *metrics,
                                 const struct cn_trainer_exchange *exchange)
{
    const struct cn_segment_run run = {
        .slot = slot, .to = trainer->sharded.plan.forward, .exchange = exchange};
    struct cn_hyper hyper;
    cn_err err = cn_trainer_begin_forward(trainer, slot, batch, &hyper);

    if (!err)
        err = cn_trainer_run_segments(trainer, &run, &hyper);
    return err ? err : cn_trainer_end_forward(trainer, slot, batch, metrics);
}

cn_err cn_trainer_backward_shared(struct cn_trainer *trainer, uint32_t slot,
                                  const struct cn_trainer_exchange *exchange, bool last)
{
    const struct cn_segment_run run = {.slot = slot,
                                       .from = trainer->sharded.plan.forward,
                                       .to = trainer->sharded.plan.segments,
                                       .exchange = exchange,
                                       .last = last};
    struct cn_compute_result result;
    struct cn_hyper hyper;
    cn_err err;

    cn_trainer_begin_backward(trainer, slot, &hyper);
    hyper.first = true; // each bucket's slot is new
    err = cn_trainer_run_segments(trainer, &run, &hyper);
    if (!err)
        err = trainer->ops->wait(trainer->device, &result);
    if (err)
        return err;
    trainer->part.slots[slot].filled = false;
    trainer->fresh = false;
    return CN_OK;
}

// Adds the squares of the numbers of a tensor that lie in this member's share.
static void add_tensor(const struct cn_trainer *trainer, size_t tensor, const float *share,
                       float scale, double *squares)
{
    size_t begin = trainer->order.places[tensor];
    size_t end = begin + trainer->layout.tensors[tensor].count;

    for (uint32_t p = 0; p < trainer->piece_count; p++) {
        const struct cn_trainer_piece *piece = &trainer->pieces[p];
        size_t from = begin > piece->first ? begin : piece->first;
        size_t to = end < piece->first + piece->count ? end : piece->first + piece->count;

        for (size_t i = from; i < to; i++) {
            double g = (double)(share[trainer->piece_at[p] + (i - piece->first)] * scale);

            *squares += g * g;
        }
    }
}

cn_err cn_trainer_part_squares(struct cn_trainer *trainer, double weight, double *squares)
{
    const struct cn_layout *layout = &trainer->layout;
    float *share;
    size_t count;
    cn_err err = cn_trainer_share(trainer, &share, &count);

    *squares = 0;
    for (size_t t = 0; !err && t < layout->tensor_count; t++)
        if (trainer->order.places[t] != SIZE_MAX && layout->tensors[t].class == CN_TENSOR_PARAM &&
            cn_trainer_owns(trainer, t))
            add_tensor(trainer, t, share, (float)(1 / weight), squares);
    return err;
}
