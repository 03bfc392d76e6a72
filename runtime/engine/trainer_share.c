// trainer_share.c - a trainer that holds the optimizer's state for a part of the values only.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer_private.h"

static bool changes_weights(const struct cn_call *call)
{
    return call->op == CN_OP_SGD || call->op == CN_OP_ADAM || call->op == CN_OP_STATISTIC;
}

// Limits a range to the gradients [first, end); false when nothing is left of it.
static bool cut(struct cn_range *range, size_t first, size_t end)
{
    size_t from = range->gradients > first ? range->gradients : first;
    size_t to = range->gradients + range->count < end ? range->gradients + range->count : end;

    if (from >= to)
        return false;
    range->weights += from - range->gradients;
    range->gradients = from;
    range->count = to - from;
    range->state_from = range->weights - (from - first); // wraps round where it is below 0
    return true;
}

// The check and the norm of clipping are those of the whole gradient.
static size_t select_calls(const struct cn_trainer *trainer, size_t first, size_t end,
                           struct cn_call *calls)
{
    size_t count = 0;

    for (size_t i = 0; i < trainer->flat_count; i++) {
        calls[count] = trainer->flat[i];
        if (!changes_weights(&calls[count]) || cut(&calls[count].range, first, end))
            count++;
    }
    return count;
}

cn_err cn_trainer_set_share(struct cn_trainer *trainer, size_t first, size_t count)
{
    struct cn_compute_program *apply = NULL;
    struct cn_call *calls;
    size_t call_count;
    cn_err err;

    if (count > trainer->state_room)
        return CN_ERANGE;
    calls = calloc(trainer->flat_count + 1, sizeof(*calls));
    if (!calls)
        return CN_ENOMEM;
    call_count = select_calls(trainer, first, first + count, calls);
    err = trainer->ops->prepare(trainer->device, calls, call_count, &apply);
    free(calls);
    if (err)
        return err;
    if (trainer->apply)
        trainer->ops->release(trainer->device, trainer->apply);
    trainer->apply = apply;
    trainer->state_first = first;
    trainer->state_count = count;
    return CN_OK;
}

void cn_trainer_to_gradient_order(const struct cn_trainer *trainer, const float *row,
                                  float *gradients)
{
    memset(gradients, 0, cn_trainer_gradient_words(trainer) * sizeof(float));
    for (size_t i = 0; i < trainer->flat_count; i++) {
        const struct cn_range *range = &trainer->flat[i].range;

        if (changes_weights(&trainer->flat[i]))
            memcpy(gradients + range->gradients, row + range->weights,
                   range->count * sizeof(float));
    }
}

void cn_trainer_from_gradient_order(const struct cn_trainer *trainer, const float *gradients,
                                    float *row)
{
    for (size_t i = 0; i < trainer->flat_count; i++) {
        const struct cn_range *range = &trainer->flat[i].range;

        if (changes_weights(&trainer->flat[i]))
            memcpy(row + range->weights, gradients + range->gradients,
                   range->count * sizeof(float));
    }
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

// Copies the optimizer's state from an arena to its places in a row, or the other way; from NULL it
// becomes zeros.
static cn_err move_state(struct cn_trainer *trainer, enum cn_arena arena, float *to,
                         const float *from)
{
    size_t end = trainer->state_first + trainer->state_count;
    float *state;
    void *host;
    cn_err err = trainer->ops->map(trainer->device, arena, &host);

    if (err)
        return err;
    state = host;
    if (!to)
        memset(state, 0, trainer->state_room * sizeof(float));
    for (size_t i = 0; i < trainer->flat_count; i++) {
        struct cn_range range = trainer->flat[i].range;
        size_t at, size;

        if (!changes_weights(&trainer->flat[i]) || !cut(&range, trainer->state_first, end))
            continue;
        at = range.weights - range.state_from;
        size = range.count * sizeof(float);
        if (to)
            memcpy(to + range.weights, state + at, size);
        else if (from)
            memcpy(state + at, from + range.weights, size);
    }
    return trainer->ops->unmap(trainer->device, arena);
}

static cn_err get_state(struct cn_trainer *trainer, enum cn_arena arena, float *row)
{
    return move_state(trainer, arena, row, NULL);
}

static cn_err set_state(struct cn_trainer *trainer, enum cn_arena arena, const float *row)
{
    return move_state(trainer, arena, NULL, row);
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
