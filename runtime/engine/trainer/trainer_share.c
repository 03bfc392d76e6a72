// trainer_share.c - holds the optimizer's state for a share of the values only.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_private.h"

static bool changes_weights(const struct cn_call *call)
{
    return call->op == CN_OP_SGD || call->op == CN_OP_ADAM || call->op == CN_OP_STATISTIC;
}

// Limits a range to the gradients [first, first + count). Returns false when it becomes empty.
static bool cut(struct cn_range *range, size_t first, size_t count)
{
    size_t end = range->gradients + range->count;
    size_t from = range->gradients > first ? range->gradients : first;
    size_t to = end < first + count ? end : first + count;

    if (from >= to)
        return false;
    range->weights += from - range->gradients;
    range->gradients = from;
    range->count = to - from;
    return true;
}

// Limits a range to a piece, and sets its places in the arenas. Returns false when it becomes
// empty.
static bool place(const struct cn_trainer *trainer, uint32_t index, struct cn_range *range)
{
    const struct cn_trainer_piece *piece = &trainer->pieces[index];
    size_t state;

    if (!cut(range, piece->first, piece->count))
        return false;
    state = trainer->piece_at[index] + (range->gradients - piece->first);
    range->share = trainer->stage >= CN_STAGE_GRADIENTS;
    range->own = trainer->stage == CN_STAGE_WEIGHTS;
    range->gradients = range->share ? state : range->gradients;
    range->weights = range->own ? state : range->weights;
    range->state_from = range->weights - state; // wraps round where it is below 0
    return true;
}

// Selects the calls of apply for this share. CN_OP_CHECK and CN_OP_CLIP need the whole gradient; in
// stages 2 and 3 the caller checks and clips the share before (cn_trainer_share), in a part of a
// model it clips the gradient (cn_trainer_clip).
static size_t select_calls(const struct cn_trainer *trainer, struct cn_call *calls)
{
    bool whole = trainer->stage < CN_STAGE_GRADIENTS;
    size_t count = 0;

    for (size_t i = 0; i < trainer->flat_count; i++) {
        if (!changes_weights(&trainer->flat[i])) {
            if (whole && !(trainer->part.slot_count && trainer->flat[i].op == CN_OP_CLIP))
                calls[count++] = trainer->flat[i];
            continue;
        }
        for (uint32_t p = 0; p < trainer->piece_count; p++) {
            calls[count] = trainer->flat[i];
            count += place(trainer, p, &calls[count].range);
        }
    }
    return count;
}

static cn_err prepare_apply(struct cn_trainer *trainer)
{
    struct cn_compute_program *apply = NULL;
    struct cn_call *calls =
        calloc(trainer->flat_count * (trainer->piece_count + 1) + 1, sizeof(*calls));
    cn_err err;

    if (!calls)
        return CN_ENOMEM;
    err = trainer->ops->prepare(trainer->device, calls, select_calls(trainer, calls), &apply);
    free(calls);
    if (err)
        return err;
    if (trainer->apply)
        trainer->ops->release(trainer->device, trainer->apply);
    trainer->apply = apply;
    return CN_OK;
}

cn_err cn_trainer_set_share(struct cn_trainer *trainer, const struct cn_trainer_piece *pieces,
                            uint32_t count)
{
    size_t words = 0;

    for (uint32_t p = 0; p < count; p++)
        words += pieces[p].count;
    if (words > trainer->state_room || count > CN_TRAINER_BUCKETS)
        return CN_ERANGE;
    trainer->state_count = words;
    trainer->piece_count = count;
    for (uint32_t p = 0; p < count; p++) {
        trainer->pieces[p] = pieces[p];
        trainer->piece_at[p] = p ? trainer->piece_at[p - 1] + pieces[p - 1].count : 0;
    }
    return prepare_apply(trainer);
}

static void move_range(const struct cn_trainer *trainer, size_t first, size_t count, float *row,
                       float *part, bool to_row)
{
    for (size_t i = 0; i < trainer->flat_count; i++) {
        struct cn_range range = trainer->flat[i].range;
        float *in_row, *in_part;

        if (!changes_weights(&trainer->flat[i]) || !cut(&range, first, count))
            continue;
        in_row = row + range.weights;
        in_part = part + (range.gradients - first);
        memcpy(to_row ? in_row : in_part, to_row ? in_part : in_row, range.count * sizeof(float));
    }
}

void cn_trainer_to_gradient_order(const struct cn_trainer *trainer, const float *row, size_t first,
                                  size_t count, float *part)
{
    memset(part, 0, count * sizeof(float));
    move_range(trainer, first, count, (float *)(uintptr_t)row, part, false);
}

void cn_trainer_from_gradient_order(const struct cn_trainer *trainer, const float *part,
                                    size_t first, size_t count, float *row)
{
    move_range(trainer, first, count, row, (float *)(uintptr_t)part, true);
}

void cn_trainer_row_to_share(const struct cn_trainer *trainer, const float *row, float *share)
{
    for (uint32_t p = 0; p < trainer->piece_count; p++)
        cn_trainer_to_gradient_order(trainer, row, trainer->pieces[p].first,
                                     trainer->pieces[p].count, share + trainer->piece_at[p]);
}

void cn_trainer_share_to_row(const struct cn_trainer *trainer, const float *share, float *row)
{
    for (uint32_t p = 0; p < trainer->piece_count; p++)
        cn_trainer_from_gradient_order(trainer, share + trainer->piece_at[p],
                                       trainer->pieces[p].first, trainer->pieces[p].count, row);
}

// Moves state of a trainer without shards, where it has the order of the gradients.
static void move_part(const struct cn_trainer *trainer, size_t first, size_t count, float *part,
                      float *state, bool to_part)
{
    for (size_t i = 0; i < trainer->flat_count; i++) {
        const struct cn_range *range = &trainer->flat[i].range;
        size_t from = range->weights > first ? range->weights : first;
        size_t end = range->weights + range->count;
        size_t to = end < first + count ? end : first + count;
        float *in_state;

        if (!changes_weights(&trainer->flat[i]) || from >= to)
            continue;
        in_state = state + range->gradients + (from - range->weights);
        memcpy(to_part ? part + (from - first) : in_state,
               to_part ? in_state : part + (from - first), (to - from) * sizeof(float));
    }
}

void cn_trainer_state_to_row(const struct cn_trainer *trainer, const float *state, size_t first,
                             size_t count, float *part)
{
    memset(part, 0, count * sizeof(*part));
    move_part(trainer, first, count, part, (float *)(uintptr_t)state, true);
}

void cn_trainer_row_to_state(const struct cn_trainer *trainer, const float *part, size_t first,
                             size_t count, float *state)
{
    move_part(trainer, first, count, (float *)(uintptr_t)part, state, false);
}

void cn_trainer_copy_piece(const struct cn_trainer *trainer, uint32_t bucket, const float *share,
                           float *slot)
{
    const struct cn_trainer_piece *piece = &trainer->pieces[bucket];

    memcpy(slot + (piece->first - trainer->sharded.plan.buckets[bucket].first),
           share + trainer->piece_at[bucket], piece->count * sizeof(float));
}

uint32_t cn_trainer_stage(const struct cn_trainer *trainer)
{
    return (uint32_t)trainer->stage;
}

cn_err cn_trainer_lend_bucket(struct cn_trainer *trainer, float **room)
{
    if (trainer->stage < CN_STAGE_GRADIENTS)
        return cn_trainer_gradients(trainer, room);
    return cn_trainer_show(trainer, CN_ARENA_GRADIENTS, room);
}

uint64_t cn_trainer_state_memory(const struct cn_trainer *trainer)
{
    return (cn_trainer_has_second(trainer) ? 2ull : 1ull) * trainer->state_room * sizeof(float);
}

cn_err cn_trainer_share_weights(struct cn_trainer *trainer, float **weights)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, CN_ARENA_WEIGHTS, &host);

    *weights = host;
    return err;
}

cn_err cn_trainer_return_weights(struct cn_trainer *trainer)
{
    return trainer->ops->unmap(trainer->device, CN_ARENA_WEIGHTS);
}

static cn_err get_state(struct cn_trainer *trainer, enum cn_arena arena, float *row)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, arena, &host);

    if (err)
        return err;
    cn_trainer_share_to_row(trainer, host, row);
    return trainer->ops->unmap(trainer->device, arena);
}

// Sets the share of a row in an arena; a NULL row is zeros.
static cn_err set_state(struct cn_trainer *trainer, enum cn_arena arena, const float *row)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, arena, &host);

    if (err)
        return err;
    memset(host, 0, trainer->state_room * sizeof(float));
    if (row)
        cn_trainer_row_to_share(trainer, row, host);
    return trainer->ops->unmap(trainer->device, arena);
}

cn_err cn_trainer_get_optimizer(struct cn_trainer *trainer, float *state)
{
    return get_state(trainer, CN_ARENA_OPTIMIZER, state);
}

cn_err cn_trainer_set_optimizer(struct cn_trainer *trainer, const float *state)
{
    return set_state(trainer, CN_ARENA_OPTIMIZER, state);
}

cn_err cn_trainer_get_second(struct cn_trainer *trainer, float *state)
{
    return get_state(trainer, CN_ARENA_SECOND, state);
}

cn_err cn_trainer_set_second(struct cn_trainer *trainer, const float *state)
{
    return set_state(trainer, CN_ARENA_SECOND, state);
}

cn_err cn_trainer_set_shared_base(struct cn_trainer *trainer, const float *row)
{
    return set_state(trainer, CN_ARENA_BASE, row);
}

// --- clipping of a share ---

// Finds the next part of the share that is trained (not a statistic), from part number *next on.
static bool next_part(const struct cn_trainer *trainer, size_t *next, struct cn_range *range)
{
    size_t parts = trainer->flat_count * trainer->piece_count;

    while (*next < parts) {
        const struct cn_call *call = &trainer->flat[*next / trainer->piece_count];
        uint32_t piece = (uint32_t)(*next % trainer->piece_count);

        ++*next;
        *range = call->range;
        if ((call->op == CN_OP_SGD || call->op == CN_OP_ADAM) && place(trainer, piece, range))
            return true;
    }
    return false;
}

cn_err cn_trainer_share_squares(struct cn_trainer *trainer, double weight, double *squares)
{
    float *share, scale = (float)(1 / weight);
    size_t count, next = 0;
    struct cn_range range;
    cn_err err = cn_trainer_share(trainer, &share, &count);

    *squares = 0;
    if (!err && trainer->part.slot_count)
        return cn_trainer_part_squares(trainer, weight, squares);
    while (!err && next_part(trainer, &next, &range))
        for (size_t i = range.gradients; i < range.gradients + range.count; i++) {
            double g = (double)(share[i] * scale);

            *squares += g * g;
        }
    return err;
}

float cn_trainer_clip_factor(const struct cn_trainer *trainer, double squares)
{
    float clip = trainer->hyper.clip / ((float)sqrt(squares) + 1e-6f);

    return trainer->hyper.clip > 0 && clip < 1 ? clip : 1;
}

cn_err cn_trainer_share_clip(struct cn_trainer *trainer, double weight, double squares)
{
    float *share, scale = (float)(1 / weight), clip = cn_trainer_clip_factor(trainer, squares);
    size_t count, next = 0;
    struct cn_range range;
    cn_err err = cn_trainer_share(trainer, &share, &count);

    while (!err && next_part(trainer, &next, &range))
        for (size_t i = range.gradients; i < range.gradients + range.count; i++) {
            float g = share[i] * scale;

            share[i] = g * clip;
        }
    trainer->clipped = !err;
    return err;
}
