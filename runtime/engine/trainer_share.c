// trainer_share.c - a trainer that holds the optimizer's state for a part of the values only.
#include <stdlib.h>

#include "runtime/engine/trainer_private.h"

// Limits a range to the values [first, end); false when nothing is left of it.
static bool cut(struct cn_range *range, size_t first, size_t end)
{
    size_t from = range->weights > first ? range->weights : first;
    size_t to = range->weights + range->count < end ? range->weights + range->count : end;

    if (from >= to)
        return false;
    range->gradients += from - range->weights;
    range->weights = from;
    range->count = to - from;
    range->state_from = first;
    return true;
}

// The check and the norm of clipping are those of the whole gradient.
static size_t select_calls(const struct cn_trainer *trainer, size_t first, size_t end,
                           struct cn_call *calls)
{
    size_t count = 0;

    for (size_t i = 0; i < trainer->flat_count; i++) {
        enum cn_op op = trainer->flat[i].op;

        calls[count] = trainer->flat[i];
        if (op == CN_OP_CHECK || op == CN_OP_CLIP || cut(&calls[count].range, first, end))
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
    return cn_trainer_read(trainer, arena, row + trainer->state_first, trainer->state_count);
}

static cn_err set_state(struct cn_trainer *trainer, enum cn_arena arena, const float *row)
{
    return cn_trainer_write(trainer, arena, row ? row + trainer->state_first : NULL,
                            trainer->state_count);
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
