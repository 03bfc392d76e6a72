// bench_ring - time of an encrypted all-reduce over loopback, ranks as processes.
//
// Prints one line for each size and number of ranks: the median time, and bytes / time; and the
// same for a set that names all ranks, in calls between those of the whole group.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ports/tcp/collective_tcp.h"
#include "runtime/port/platform.h"

#define REPEATS_MAX 1000

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

// Calls of the whole group and of a set of all its ranks, in turn.
static cn_err measure(struct cn_collective *ring, const struct cn_set *set, size_t size,
                      int repeats, uint64_t times_us[2][REPEATS_MAX])
{
    float *data = calloc(size / sizeof(float), sizeof(float));
    struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE, .data = data, .count = size / sizeof(float)};
    cn_err err = data ? CN_OK : CN_ENOMEM;

    for (int i = 0; i < 2 * (repeats + repeats / 10 + 1) && !err; i++) {
        int slot = i / 2 - repeats / 10 - 1; // the first ones warm up
        uint64_t begin_us = cn_platform_now_us();

        call.set = i % 2 ? set : NULL;
        err = ring->ops->run(ring, &call);
        if (slot >= 0)
            times_us[i % 2][slot] = cn_platform_now_us() - begin_us;
    }
    free(data);
    return err;
}

static void print_median(const char *who, uint32_t ranks, size_t size, uint64_t *times_us,
                         int repeats)
{
    uint64_t median_us;

    qsort(times_us, (size_t)repeats, sizeof(times_us[0]), compare_times);
    median_us = times_us[repeats / 2];
    printf("%s ranks=%u bytes=%zu median_us=%llu GB_per_s=%.3f\n", who, ranks, size,
           (unsigned long long)median_us, (double)size / ((double)median_us * 1e3));
    fflush(stdout);
}

static cn_err run_rank(const struct cn_member *members, uint32_t rank, uint32_t ranks)
{
    static const struct {
        size_t size;
        int repeats;
    } cases[] = {{64 << 10, REPEATS_MAX}, {16 << 20, 20}};
    static uint64_t times_us[2][REPEATS_MAX];
    struct cn_set set = {.id = 1, .size = ranks};
    struct cn_collective_config config = {.members = members,
                                          .member_count = ranks,
                                          .open_timeout_ms = 10000,
                                          .progress_timeout_ms = 10000,
                                          .cancel_fd = -1};
    struct cn_collective *ring = NULL;
    uint32_t lost;
    cn_err err;

    config.view = (struct cn_view){.epoch = 1, .size = ranks, .rank = rank};
    for (uint32_t i = 0; i < ranks; i++)
        config.view.ranks[i] = set.ranks[i] = i;
    err = cn_collective_tcp.open(&config, &ring, &lost);
    for (size_t k = 0; k < 2 && !err; k++) {
        err = measure(ring, &set, cases[k].size, cases[k].repeats, times_us);
        if (err || rank != 0)
            continue;
        print_median("ring", ranks, cases[k].size, times_us[0], cases[k].repeats);
        print_median("set", ranks, cases[k].size, times_us[1], cases[k].repeats);
    }
    cn_collective_tcp.close(ring);
    return err;
}

static int run_group(uint32_t ranks)
{
    struct cn_member members[CN_GROUP_MAX] = {0};
    int failed = 0, status;

    for (uint32_t i = 0; i < ranks; i++) {
        snprintf(members[i].name, CN_NAME_SIZE, "board-%u", i);
        snprintf(members[i].address, sizeof(members[i].address), "127.90.%u.%u:7400",
                 (unsigned)getpid() & 255, i + 1);
        memset(members[i].pair_key, 1, CN_KEY_SIZE);
    }
    for (uint32_t i = 0; i < ranks; i++)
        if (fork() == 0)
            _exit(run_rank(members, i, ranks) != CN_OK);
    for (uint32_t i = 0; i < ranks; i++)
        failed |= wait(&status) < 0 || status != 0;
    return failed;
}

int main(void)
{
    return run_group(2) | run_group(4);
}
