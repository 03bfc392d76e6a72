// trainer_shards.c - runs passes that hold gradients, and in stage 3 weights, a bucket at a time.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_private.h"

// --- programs ---

static size_t slots_of(const struct cn_trainer *trainer)
{
    return trainer->part.slot_count ? trainer->part.slot_count : 1;
}

static cn_err prepare_segments(struct cn_trainer *trainer, const struct cn_call *calls,
                               size_t segments, struct cn_compute_program **programs)
{
    const size_t *ends = trainer->sharded.plan.ends;
    size_t from = 0;
    cn_err err = CN_OK;

    for (size_t j = 0; !err && j < segments; from = ends[j++])
        err = trainer->ops->prepare(trainer->device, calls + from, ends[j] - from, &programs[j]);
    return err;
}

// Prepares the segments of a part in one slot.
static cn_err prepare_slot(struct cn_trainer *trainer, const struct cn_program *program,
                           uint32_t slot)
{
    size_t segments = trainer->sharded.plan.segments;
    struct cn_call *calls = calloc(program->count + 1, sizeof(*calls));
    cn_err err;

    if (!calls)
        return CN_ENOMEM;
    cn_program_move(program, program->calls, program->count, slot, calls);
    err = prepare_segments(trainer, calls, segments, trainer->sharded.train + slot * segments);
    free(calls);
    return err;
}

cn_err cn_trainer_prepare_segments(struct cn_trainer *trainer, const struct cn_program *program)
{
    struct sharded *sharded = &trainer->sharded;
    size_t segments = sharded->plan.segments;
    cn_err err = CN_OK;

    sharded->train = calloc(slots_of(trainer) * segments + 1, sizeof(struct cn_compute_program *));
    if (!sharded->train)
        return CN_ENOMEM;
    for (uint32_t b = 0; !err && b < sharded->plan.count; b++)
        err = cn_trainer_prepare_sum(trainer, sharded->plan.buckets[b].slot,
                                     sharded->plan.buckets[b].count, &sharded->sums[b]);
    if (!err && !trainer->part.slot_count)
        err = prepare_segments(trainer, program->calls, segments, sharded->train);
    for (uint32_t slot = 0; !err && slot < trainer->part.slot_count; slot++)
        err = prepare_slot(trainer, program, slot);
    return err;
}

cn_err cn_trainer_prepare_forward(struct cn_trainer *trainer, const struct cn_call *calls)
{
    struct sharded *sharded = &trainer->sharded;

    sharded->evaluate = calloc(sharded->plan.forward + 1, sizeof(struct cn_compute_program *));
    return sharded->evaluate
               ? prepare_segments(trainer, calls, sharded->plan.forward, sharded->evaluate)
               : CN_ENOMEM;
}

static void release_all(struct cn_trainer *trainer, struct cn_compute_program **programs,
                        size_t count)
{
    for (size_t i = 0; programs && i < count; i++)
        trainer->ops->release(trainer->device, programs[i]);
}

void cn_trainer_release_segments(struct cn_trainer *trainer)
{
    struct sharded *sharded = &trainer->sharded;

    release_all(trainer, sharded->train, slots_of(trainer) * sharded->plan.segments);
    release_all(trainer, sharded->evaluate, sharded->plan.forward);
    release_all(trainer, sharded->sums, sharded->plan.count);
    free(sharded->train);
    free(sharded->evaluate);
    cn_trainer_release_copies(trainer);
    cn_bucket_plan_deinit(&sharded->plan);
}

// --- a pass ---

// The state of a pass, which runs segment by segment. Tickets come from the exchange.
struct pass {
    struct cn_trainer *trainer;
    const struct cn_trainer_exchange *exchange;
    float *gradients, *weights, *share, *own; // arenas
    bool last;                                // the step's last micro-batch
    size_t fetched, arrived;                  // number of fetches that began, that ended
    uint32_t reduced, taken;                  // number of reductions that began, that ended
    uint64_t fetches[CN_TRAINER_BUCKETS];     // tickets, by fetch modulo the size
    uint64_t buckets[CN_TRAINER_BUCKETS], replicas[CN_TRAINER_BUCKETS];
};

static cn_err open_pass(struct cn_trainer *trainer, struct pass *pass)
{
    cn_err err = cn_trainer_show(trainer, CN_ARENA_GRADIENTS, &pass->gradients);

    if (!err)
        err = cn_trainer_show(trainer, CN_ARENA_WEIGHTS, &pass->weights);
    if (!err)
        err = cn_trainer_show(trainer, CN_ARENA_SHARE, &pass->share);
    return err ? err : cn_trainer_show(trainer, CN_ARENA_OWN, &pass->own);
}

// Puts this member's piece of a bucket into its slot, and begins to fetch the others. Lent weights
// fill the whole slot at once.
static cn_err begin_fetch(struct pass *pass, size_t index)
{
    struct cn_trainer *trainer = pass->trainer;
    const struct cn_fetch *fetch = &trainer->sharded.plan.fetches[index];
    const struct cn_planned_bucket *bucket = &trainer->sharded.plan.buckets[fetch->bucket];
    float *slot = pass->weights + fetch->slot;

    if (trainer->sharded.lent) {
        cn_trainer_to_gradient_order(trainer, trainer->sharded.lent, bucket->first, bucket->count,
                                     slot);
        return CN_OK;
    }
    cn_trainer_copy_piece(trainer, fetch->bucket, pass->own, slot);
    return pass->exchange->begin(pass->exchange->context, CN_EXCHANGE_GATHER, fetch->bucket, slot,
                                 bucket->count, &pass->fetches[index % CN_TRAINER_BUCKETS]);
}

static cn_err end_fetch(struct pass *pass, size_t index)
{
    const struct cn_bucket_plan *plan = &pass->trainer->sharded.plan;
    const struct cn_fetch *fetch = &plan->fetches[index];
    cn_err err = CN_OK;

    if (!pass->trainer->sharded.lent)
        err =
            pass->exchange->end(pass->exchange->context, pass->fetches[index % CN_TRAINER_BUCKETS]);
    return err ? err
               : cn_trainer_push(pass->trainer, CN_ARENA_WEIGHTS, fetch->slot,
                                 plan->buckets[fetch->bucket].count);
}

// Waits for the weights that a segment needs, and begins to fetch the weights of the next segment.
static cn_err fetch_for(struct pass *pass, size_t segment, size_t segments)
{
    const struct cn_bucket_plan *plan = &pass->trainer->sharded.plan;
    cn_err err = CN_OK;

    while (!err && pass->fetched < plan->fetch_count &&
           plan->fetches[pass->fetched].begin <= segment &&
           plan->fetches[pass->fetched].first < segments)
        err = begin_fetch(pass, pass->fetched++);
    while (!err && pass->arrived < pass->fetched && plan->fetches[pass->arrived].first <= segment)
        err = end_fetch(pass, pass->arrived++);
    return err;
}

static void add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

// Waits for a bucket's reduction, and adds this member's piece of the sum to its share. With the
// last micro-batch it begins to sum the piece over the replicas.
static cn_err take_bucket(struct pass *pass, uint32_t b)
{
    struct cn_trainer *trainer = pass->trainer;
    const struct cn_planned_bucket *bucket = &trainer->sharded.plan.buckets[b];
    const struct cn_trainer_piece *piece = &trainer->pieces[b];
    const float *from = pass->gradients + bucket->slot + (piece->first - bucket->first);
    float *to = pass->share + trainer->piece_at[b];
    cn_err err = pass->exchange->end(pass->exchange->context, pass->buckets[b]);

    if (err)
        return err;
    if (trainer->fresh)
        memcpy(to, from, piece->count * sizeof(*to));
    else
        add(to, from, piece->count);
    if (!pass->last)
        return CN_OK;
    return pass->exchange->begin(pass->exchange->context, CN_EXCHANGE_REPLICAS, b, to, piece->count,
                                 &pass->replicas[b]);
}

// Frees the slots of buckets that were complete before the previous segment began.
static cn_err free_slots(struct pass *pass, size_t segment)
{
    const struct cn_bucket_plan *plan = &pass->trainer->sharded.plan;
    cn_err err = CN_OK;

    while (!err && pass->taken < pass->reduced && plan->buckets[pass->taken].segment + 1 < segment)
        err = take_bucket(pass, pass->taken++);
    return err;
}

// Begins to reduce the buckets that a segment completes. Without hyper there was no batch, and the
// gradient is zero.
static cn_err reduce_after(struct pass *pass, size_t segment, const struct cn_hyper *hyper)
{
    struct cn_trainer *trainer = pass->trainer;
    const struct cn_bucket_plan *plan = &trainer->sharded.plan;
    cn_err err = CN_OK;

    while (!err && pass->reduced < plan->count && plan->buckets[pass->reduced].segment == segment) {
        uint32_t b = pass->reduced++;
        size_t at = plan->buckets[b].slot, count = plan->buckets[b].count;
        float *slot = pass->gradients + at;

        if (hyper)
            err = trainer->ops->run(trainer->device, trainer->sharded.sums[b], hyper);
        else
            memset(slot, 0, count * sizeof(*slot));
        if (!err && hyper)
            err = cn_trainer_pull(trainer, CN_ARENA_GRADIENTS, at, count);
        if (!err)
            err = pass->exchange->begin(pass->exchange->context, CN_EXCHANGE_REDUCE, b, slot, count,
                                        &pass->buckets[b]);
    }
    return err;
}

static cn_err end_pass(struct pass *pass)
{
    const struct cn_bucket_plan *plan = &pass->trainer->sharded.plan;
    cn_err err = free_slots(pass, SIZE_MAX);

    for (uint32_t b = 0; !err && pass->last && b < plan->count; b++)
        err = pass->exchange->end(pass->exchange->context, pass->replicas[b]);
    return err;
}

// Leaves out the fetches of segments before the first one.
static void skip_fetches(struct pass *pass, size_t from)
{
    const struct cn_bucket_plan *plan = &pass->trainer->sharded.plan;

    while (pass->fetched < plan->fetch_count && plan->fetches[pass->fetched].first < from)
        pass->fetched++;
    pass->arrived = pass->fetched;
}

cn_err cn_trainer_run_segments(struct cn_trainer *trainer, const struct cn_segment_run *run,
                               const struct cn_hyper *hyper)
{
    struct pass pass = {.trainer = trainer, .exchange = run->exchange, .last = run->last};
    struct cn_compute_program *const *programs =
        trainer->sharded.train + run->slot * trainer->sharded.plan.segments;
    cn_err err = open_pass(trainer, &pass);

    skip_fetches(&pass, run->from);
    for (size_t j = run->from; !err && j < run->to; j++) {
        err = free_slots(&pass, j);
        if (!err)
            err = fetch_for(&pass, j, run->to);
        if (!err && hyper)
            err = trainer->ops->run(trainer->device, programs[j], hyper);
        if (!err)
            err = reduce_after(&pass, j, hyper);
    }
    if (!err && run->to == trainer->sharded.plan.segments)
        err = end_pass(&pass);
    return err;
}

cn_err cn_trainer_run_forward(struct cn_trainer *trainer, const struct cn_hyper *hyper)
{
    struct pass pass = {.trainer = trainer};
    size_t segments = trainer->sharded.plan.forward;
    cn_err err = trainer->sharded.lent ? open_pass(trainer, &pass) : CN_EINVAL;

    for (size_t j = 0; !err && j < segments; j++) {
        err = fetch_for(&pass, j, segments);
        if (!err)
            err = trainer->ops->run(trainer->device, trainer->sharded.evaluate[j], hyper);
    }
    return err ? err : trainer->ops->run(trainer->device, trainer->evaluate, hyper);
}

// --- weights without a gradient, which are whole on each member ---

// Moves them from the arena to the row `to`, or from the row `from` to the arena; the other is
// NULL.
static void move_residents(const struct cn_trainer *trainer, float *weights, float *to,
                           const float *from)
{
    for (size_t t = 0; t < trainer->layout.tensor_count; t++) {
        const struct cn_tensor_info *tensor = &trainer->layout.tensors[t];
        size_t at = trainer->sharded.plan.resident[t], size = tensor->count * sizeof(float);

        if (at != SIZE_MAX && to)
            memcpy(to + tensor->offset, weights + at, size);
        else if (at != SIZE_MAX)
            memcpy(weights + at, from + tensor->offset, size);
    }
}

static cn_err show_own(struct cn_trainer *trainer, float **weights, float **own)
{
    cn_err err = cn_trainer_show(trainer, CN_ARENA_WEIGHTS, weights);

    return err ? err : cn_trainer_show(trainer, CN_ARENA_OWN, own);
}

cn_err cn_trainer_get_own(struct cn_trainer *trainer, float *row)
{
    float *weights, *own;
    cn_err err = show_own(trainer, &weights, &own);

    if (err)
        return err;
    move_residents(trainer, weights, row, NULL);
    cn_trainer_share_to_row(trainer, own, row);
    return CN_OK;
}

cn_err cn_trainer_set_own(struct cn_trainer *trainer, const float *row)
{
    float *weights, *own;
    cn_err err = show_own(trainer, &weights, &own);

    if (err)
        return err;
    move_residents(trainer, weights, NULL, row);
    cn_trainer_row_to_share(trainer, row, own);
    err = cn_trainer_push(trainer, CN_ARENA_WEIGHTS, 0, trainer->sharded.plan.resident_words);
    return err ? err : cn_trainer_push(trainer, CN_ARENA_OWN, 0, trainer->state_count);
}

cn_err cn_trainer_share(struct cn_trainer *trainer, float **share, size_t *count)
{
    *count = trainer->state_count;
    return cn_trainer_show(trainer, CN_ARENA_SHARE, share);
}
