// bench_ring - time of an encrypted all-reduce over loopback, ranks as processes.
//
// Prints one line for each size and number of ranks: the median time, and bytes / time.
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

static cn_err measure(struct cn_collective *ring, size_t size, int repeats, uint64_t times_us[])
{
    float *data = calloc(size / sizeof(float), sizeof(float));
    cn_err err = data ? CN_OK : CN_ENOMEM;

    for (int i = 0; i < repeats + repeats / 10 + 1 && !err; i++) {
        int slot = i - repeats / 10 - 1; // the first ones warm up
        uint64_t begin_us = cn_platform_now_us();

        err = cn_all_reduce(ring, CN_REDUCE_SUM, data, size / sizeof(float));
        if (slot >= 0)
            times_us[slot] = cn_platform_now_us() - begin_us;
    }
    free(data);
    return err;
}

static cn_err run_rank(const struct cn_member *members, uint32_t rank, uint32_t ranks)
{
    static const struct {
        size_t size;
        int repeats;
    } cases[] = {{64 << 10, REPEATS_MAX}, {16 << 20, 20}};
    static uint64_t times_us[REPEATS_MAX];
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
        config.view.ranks[i] = i;
    err = cn_collective_tcp.open(&config, &ring, &lost);
    for (size_t k = 0; k < 2 && !err; k++) {
        uint64_t median_us;

        err = measure(ring, cases[k].size, cases[k].repeats, times_us);
        if (err || rank != 0)
            continue;
        qsort(times_us, (size_t)cases[k].repeats, sizeof(times_us[0]), compare_times);
        median_us = times_us[cases[k].repeats / 2];
        printf("ring ranks=%u bytes=%zu median_us=%llu GB_per_s=%.3f\n", ranks, cases[k].size,
               (unsigned long long)median_us, (double)cases[k].size / ((double)median_us * 1e3));
        fflush(stdout);
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
