// The product's collective. The program without encryption has another pair below it.
#include <stdio.h>
#include <string.h>

#include "ports/tcp/collective_tcp.h"
#include "tests/bench/group/reducer.h"

const char *const reducer_name = REDUCER_NAME;

static struct cn_collective *collective;

int reducer_open(uint32_t rank, uint32_t ranks, char *const *addresses, const char *store)
{
    static struct cn_member members[CN_GROUP_MAX];
    struct cn_collective_config config = {.members = members,
                                          .member_count = ranks,
                                          .view = {.epoch = 1, .size = ranks, .rank = rank},
                                          .open_timeout_ms = 20000,
                                          .progress_timeout_ms = 60000,
                                          .cancel_fd = -1};
    uint32_t lost;

    (void)store;
    for (uint32_t i = 0; i < ranks; i++) {
        snprintf(members[i].name, sizeof(members[i].name), "board-%u", i);
        snprintf(members[i].address, sizeof(members[i].address), "%s:7400", addresses[i]);
        memset(members[i].pair_key, 1, CN_KEY_SIZE);
        config.view.ranks[i] = i;
    }
    return cn_collective_tcp.open(&config, &collective, &lost);
}

int reducer_sum(float *data, size_t count)
{
    return cn_all_reduce(collective, CN_REDUCE_SUM, data, count);
}

void reducer_close(void)
{
    if (collective)
        cn_collective_tcp.close(collective);
}
