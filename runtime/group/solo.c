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

static cn_err solo_all_reduce(struct cn_collective *collective, enum cn_reduce how, float *data,
                              size_t count)
{
    (void)collective;
    (void)how;
    (void)data;
    (void)count;
    return CN_OK;
}

static cn_err solo_broadcast(struct cn_collective *collective, uint32_t root, void *data,
                             size_t size)
{
    (void)collective;
    (void)root;
    (void)data;
    (void)size;
    return CN_OK;
}

static cn_err solo_barrier(struct cn_collective *collective)
{
    (void)collective;
    return CN_OK;
}

static void solo_cancel(struct cn_collective *collective)
{
    (void)collective;
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
    .all_reduce = solo_all_reduce,
    .broadcast = solo_broadcast,
    .barrier = solo_barrier,
    .cancel = solo_cancel,
    .lost = solo_lost,
};
