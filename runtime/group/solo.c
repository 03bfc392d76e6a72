#include "runtime/group/solo.h"

static struct cn_collective solo = {.ops = &cn_collective_solo};

static cn_err solo_open(const struct cn_collective_config *config,
                        struct cn_collective **collective, uint32_t *lost)
{
    *lost = UINT32_MAX;
    if (config->view.size != 1)
        return CN_EINVAL;
    *collective = &solo; // it has no state
    return CN_OK;
}

static void solo_close(struct cn_collective *collective)
{
    (void)collective;
}

static cn_err solo_prepare(struct cn_collective *collective, const struct cn_set *sets,
                           uint32_t count)
{
    (void)collective;
    (void)sets;
    (void)count;
    return CN_OK;
}

// With one member, data already holds the result of a reduction, a gather or a broadcast.
static cn_err solo_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    (void)collective;
    if (call->kind == CN_COLLECTIVE_SEND || call->kind == CN_COLLECTIVE_RECEIVE)
        return CN_EINVAL;
    return CN_OK;
}

static void solo_cancel(struct cn_collective *collective, bool gives_up)
{
    (void)collective;
    (void)gives_up;
}

static cn_err solo_check(struct cn_collective *collective)
{
    (void)collective;
    return CN_OK;
}

static uint32_t solo_lost(const struct cn_collective *collective)
{
    (void)collective;
    return UINT32_MAX;
}

const struct cn_collective_ops cn_collective_solo = {
    .name = "solo",
    .open = solo_open,
    .close = solo_close,
    .prepare = solo_prepare,
    .run = solo_run,
    .cancel = solo_cancel,
    .check = solo_check,
    .lost = solo_lost,
};
