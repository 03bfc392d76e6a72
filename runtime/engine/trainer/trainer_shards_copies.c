// trainer_shards_copies.c - gives the host access to arenas while a pass in shards runs.
//
// Members exchange some buckets while the device works on others. A GPU has its own memory, or
// shares it but does not let the host touch it while it works. Then buckets are exchanged in
// copies.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_private.h"

// The arenas that exchanges read or write, and the stage from which they do.
static const struct {
    enum cn_arena arena;
    enum cn_stage from;
} copied[] = {
    {CN_ARENA_GRADIENTS, CN_STAGE_GRADIENTS},
    {CN_ARENA_SHARE, CN_STAGE_GRADIENTS},
    {CN_ARENA_WEIGHTS, CN_STAGE_WEIGHTS},
    {CN_ARENA_OWN, CN_STAGE_WEIGHTS},
};

#define COPIED (sizeof(copied) / sizeof(copied[0]))

uint64_t cn_trainer_copies(const struct cn_trainer *trainer, enum cn_stage stage,
                           const struct cn_compute_sizes *sizes)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < COPIED && !trainer->device->host_memory; i++)
        if (stage >= copied[i].from)
            bytes += sizes->words[copied[i].arena] * sizeof(float);
    return bytes;
}

cn_err cn_trainer_take_copies(struct cn_trainer *trainer, const struct cn_compute_sizes *sizes)
{
    for (size_t i = 0; i < COPIED && !trainer->device->host_memory; i++) {
        enum cn_arena arena = copied[i].arena;

        if (trainer->stage < copied[i].from)
            continue;
        trainer->sharded.copies[arena] = calloc(sizes->words[arena] + 1, sizeof(float));
        if (!trainer->sharded.copies[arena])
            return CN_ENOMEM;
    }
    return CN_OK;
}

void cn_trainer_release_copies(struct cn_trainer *trainer)
{
    for (size_t i = 0; i < COPIED; i++) {
        free(trainer->sharded.copies[copied[i].arena]);
        trainer->sharded.copies[copied[i].arena] = NULL;
    }
}

cn_err cn_trainer_show(struct cn_trainer *trainer, enum cn_arena arena, float **host)
{
    void *shown;
    cn_err err;

    *host = trainer->sharded.copies[arena];
    if (*host)
        return CN_OK;
    err = trainer->ops->map(trainer->device, arena, &shown);
    *host = shown;
    return err;
}

// Copies between an arena and its copy; does nothing where there is no copy.
static cn_err move(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count,
                   bool to_copy)
{
    float *copy = trainer->sharded.copies[arena], *host;
    void *mapped;
    cn_err err;

    if (!copy)
        return CN_OK;
    err = trainer->ops->map(trainer->device, arena, &mapped);
    if (err)
        return err;
    host = mapped;
    memcpy((to_copy ? copy : host) + first, (to_copy ? host : copy) + first, count * sizeof(*copy));
    return trainer->ops->unmap(trainer->device, arena);
}

cn_err cn_trainer_pull(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count)
{
    return move(trainer, arena, first, count, true);
}

cn_err cn_trainer_push(struct cn_trainer *trainer, enum cn_arena arena, size_t first, size_t count)
{
    return move(trainer, arena, first, count, false);
}
