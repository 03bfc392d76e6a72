// bench_group - times one rank's all-reduces; allreduce.py starts the ranks.
//
//     bench_group_NAME RANK STORE LARGEST ADDRESS...
//
// Rank 0 prints for each size: bytes, median microseconds, share of a core.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/port/platform.h"
#include "tests/bench/group/reducer.h"

#define REPEATS_MAX 200

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double used_us(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return 1e6 * (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int time_size(uint32_t rank, float *data, size_t bytes, int repeats)
{
    static uint64_t times[REPEATS_MAX];
    uint64_t begun = 0;
    double used = 0;

    for (int i = -repeats / 4 - 1; i < repeats; i++) { // the first ones warm up
        uint64_t from = cn_platform_now_us();

        if (i == 0) {
            begun = from;
            used = used_us();
        }
        if (reducer_sum(data, bytes / sizeof(float)))
            return 1;
        if (i >= 0)
            times[i] = cn_platform_now_us() - from;
    }
    used = (used_us() - used) / (double)(cn_platform_now_us() - begun);
    qsort(times, (size_t)repeats, sizeof(times[0]), compare_times);
    if (rank == 0)
        printf("%s %zu %llu %.2f\n", reducer_name, bytes, (unsigned long long)times[repeats / 2],
               used);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        size_t bytes;
        int repeats;
    } cases[] = {{4 << 10, 200}, {64 << 10, 200}, {1 << 20, 40}, {16 << 20, 8}, {100000000, 3}};
    uint32_t rank, ranks = (uint32_t)(argc - 4);
    size_t largest;
    float *data;
    int failed;

    if (argc < 6)
        return 2;
    rank = (uint32_t)strtoul(argv[1], NULL, 10);
    largest = strtoull(argv[3], NULL, 10);
    data = calloc(1, cases[4].bytes);
    failed = !data || reducer_open(rank, ranks, argv + 4, argv[2]);
    for (size_t i = 0; !failed && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (cases[i].bytes <= largest)
            failed = time_size(rank, data, cases[i].bytes, cases[i].repeats);
    reducer_close();
    free(data);
    return failed;
}
