// trainer_buckets.c - runs the backward pass in parts, so that gradients can travel meanwhile.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_private.h"

_Static_assert(CN_TRAINER_BUCKETS <= CN_COMPUTE_SHOWS, "each bucket is shown");

cn_err cn_trainer_prepare_sum(struct cn_trainer *trainer, size_t first, size_t count,
                              struct cn_compute_program **program)
{
    const struct cn_call sum = {.op = CN_OP_SUM_LANES,
                                .range = {.gradients = first, .count = count}};

    return trainer->ops->prepare(trainer->device, &sum, 1, program);
}

size_t cn_trainer_gradient_words(const struct cn_trainer *trainer)
{
    return cn_gradient_order_words(&trainer->order);
}

size_t cn_trainer_gradient_place(const struct cn_trainer *trainer, size_t tensor)
{
    return trainer->order.places[tensor];
}

uint32_t cn_trainer_bucket_count(const struct cn_trainer *trainer)
{
    return trainer->sharded.plan.count ? trainer->sharded.plan.count : trainer->bucket_count;
}

size_t cn_trainer_bucket_words(const struct cn_trainer *trainer, uint32_t bucket)
{
    return trainer->sharded.plan.count ? trainer->sharded.plan.buckets[bucket].count
                                       : trainer->buckets[bucket].count;
}

void cn_trainer_release_buckets(struct cn_trainer *trainer)
{
    for (uint32_t i = 0; trainer->bucket_count > 1 && i < trainer->bucket_count; i++) {
        trainer->ops->release(trainer->device, trainer->buckets[i].train);
        trainer->ops->release(trainer->device, trainer->buckets[i].sum);
    }
    // A single bucket uses the trainer's own programs.
    trainer->buckets[0] = (struct bucket){
        .train = trainer->train, .sum = trainer->sum, .count = cn_trainer_gradient_words(trainer)};
    trainer->bucket_count = 1;
}

// Prepares a bucket's calls, from the end of the bucket before it, and the sum over its lanes. The
// sum of the last bucket extends to the end of the arena, so that all of it is summed.
static cn_err prepare_bucket(struct cn_trainer *trainer, uint32_t index, size_t from, size_t to)
{
    struct bucket *bucket = &trainer->buckets[index];
    bool last = index + 1 == trainer->bucket_count;
    size_t end = last ? trainer->layout.total : bucket->first + bucket->count;
    cn_err err = CN_OK;

    if (!trainer->part.slot_count) // else cn_trainer_backward runs the calls
        err = trainer->ops->prepare(trainer->device, trainer->calls + from, to - from,
                                    &bucket->train);

    return err ? err
               : cn_trainer_prepare_sum(trainer, bucket->first, end - bucket->first, &bucket->sum);
}

static cn_err prepare_buckets(struct cn_trainer *trainer, const size_t *last, uint32_t count,
                              const size_t *finished)
{
    size_t from = 0, first = 0;
    cn_err err = CN_OK;

    memset(trainer->buckets, 0, sizeof(trainer->buckets));
    trainer->bucket_count = count;
    for (uint32_t i = 0; !err && i < count; i++) {
        size_t to = i + 1 == count ? trainer->call_count : finished[last[i]];

        trainer->buckets[i].first = first;
        trainer->buckets[i].count = trainer->order.ends[last[i]] - first;
        err = prepare_bucket(trainer, i, from, to);
        from = to;
        first = trainer->order.ends[last[i]];
    }
    if (err)
        cn_trainer_release_buckets(trainer);
    return err;
}

cn_err cn_trainer_set_buckets(struct cn_trainer *trainer, size_t words)
{
    size_t *last, *finished;
    uint32_t count;
    cn_err err;

    if (trainer->shards > 1) // a share has one piece of each of these buckets
        words = cn_bucket_plan_words(&trainer->order);
    if (trainer->stage >= CN_STAGE_GRADIENTS)
        return CN_OK;
    last = calloc(trainer->order.granules + 1, sizeof(*last));
    finished = calloc(trainer->order.granules + 1, sizeof(*finished));
    err = last && finished ? CN_OK : CN_ENOMEM;
    cn_trainer_release_buckets(trainer);
    if (!err && trainer->order.granules > 1) {
        count = cn_gradient_order_cut(&trainer->order, words, CN_TRAINER_BUCKETS, last);
        cn_gradient_order_finish(&trainer->order, trainer->calls, trainer->call_count, finished);
        if (count > 1)
            err = prepare_buckets(trainer, last, count, finished);
    }
    free(last);
    free(finished);
    return err;
}

// Calls ready for the next bucket if the device has shown it. Otherwise waits, or without wait
// returns CN_EAGAIN.
static cn_err tell(struct cn_trainer *trainer, uint32_t next, bool wait,
                   const struct cn_trainer_sink *sink)
{
    const struct bucket *bucket = &trainer->buckets[next];
    cn_err err = trainer->ops->shown(trainer->device, wait);

    if (!err)
        sink->ready(sink->context, next, bucket->data, bucket->count);
    return err;
}

cn_err cn_trainer_run_buckets(struct cn_trainer *trainer, const struct cn_hyper *hyper,
                              const struct cn_trainer_sink *sink)
{
    const struct cn_compute_ops *ops = trainer->ops;
    uint32_t told = 0;
    cn_err err = CN_OK;

    trainer->mapped = true;
    for (uint32_t i = 0; !err && i < trainer->bucket_count; i++) {
        struct bucket *bucket = &trainer->buckets[i];
        void *host;

        if (bucket->train)
            err = ops->run(trainer->device, bucket->train, hyper);
        if (!err)
            err = ops->run(trainer->device, bucket->sum, hyper);
        if (!err)
            err =
                ops->show(trainer->device, CN_ARENA_GRADIENTS, bucket->first, bucket->count, &host);
        if (err)
            return err;
        bucket->data = host;
        while (!err && told <= i) {
            err = tell(trainer, told, false, sink);
            told += !err;
        }
        err = err == CN_EAGAIN ? CN_OK : err;
    }
    while (!err && told < trainer->bucket_count)
        err = tell(trainer, told++, true, sink);
    return err;
}
