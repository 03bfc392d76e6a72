// trainer_rows.c - shows rows of a trainer's state to the host without copying them.
#include <assert.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_private.h"

static const enum cn_arena arenas[CN_TRAINER_ROWS] = {
    [CN_TRAINER_WEIGHTS] = CN_ARENA_WEIGHTS,
    [CN_TRAINER_BASE] = CN_ARENA_BASE,
    [CN_TRAINER_OPTIMIZER] = CN_ARENA_OPTIMIZER,
    [CN_TRAINER_SECOND] = CN_ARENA_SECOND,
};

bool cn_trainer_has_row(const struct cn_trainer *trainer, enum cn_trainer_row row)
{
    if (row == CN_TRAINER_BASE)
        return trainer->rules.proximal > 0;
    return row != CN_TRAINER_SECOND || cn_trainer_has_second(trainer);
}

cn_err cn_trainer_show_row(struct cn_trainer *trainer, enum cn_trainer_row row, float **view)
{
    void *host;
    cn_err err;

    assert(trainer->shards == 1 && cn_trainer_has_row(trainer, row));
    err = trainer->ops->map(trainer->device, arenas[row], &host);
    *view = host;
    return err;
}

cn_err cn_trainer_hide_row(struct cn_trainer *trainer, enum cn_trainer_row row)
{
    return trainer->ops->unmap(trainer->device, arenas[row]);
}

static bool is_state(enum cn_trainer_row row)
{
    return row == CN_TRAINER_OPTIMIZER || row == CN_TRAINER_SECOND;
}

void cn_trainer_get_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *view, size_t first, size_t count, float *part)
{
    if (is_state(row))
        cn_trainer_state_to_row(trainer, view, first, count, part);
    else
        memcpy(part, view + first, count * sizeof(*part));
}

void cn_trainer_put_part(const struct cn_trainer *trainer, enum cn_trainer_row row,
                         const float *part, size_t first, size_t count, float *view)
{
    if (is_state(row))
        cn_trainer_row_to_state(trainer, part, first, count, view);
    else
        memcpy(view + first, part, count * sizeof(*part));
}
