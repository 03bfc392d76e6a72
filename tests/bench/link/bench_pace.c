// bench_pace [down] [BYTES MBIT_S RTT_MS LOSS_PERCENT]: what the pacing makes of simulated links,
// of all in the table or of one. No network and no waiting; the clock is simulated, so the figures
// are those of the algorithm alone.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sim_transfer.h"

#define SEEDS 5
#define BODY 1280 // of a message, where the path MTU is 1500

static const uint64_t rates[] = {2000000, 20000000, 100000000};
static const uint64_t rtts_ms[] = {20, 40, 200, 600};
static const double losses[] = {0, 0.01, 0.05, 0.10};
static const size_t sizes[] = {64 << 10, 5 << 20, 50 << 20};

static void row(size_t size, uint64_t rate, uint64_t rtt_ms, double loss, bool download)
{
    struct cn_sim_case one = {.size = size, .download = download, .body_max = BODY};
    struct cn_sim_result result;
    uint64_t elapsed = 0;
    double bdps, share = 0;

    cn_sim_link(&one, rate, rtt_ms * 1000, loss, rtt_ms > 50 ? rtt_ms : 50);
    bdps = (double)size / ((double)rate / 8 * (double)rtt_ms / 1e3);
    for (int seed = 0; seed < SEEDS; seed++) {
        one.up.seed = 2 * (uint64_t)seed + 1;
        one.down.seed = 2 * (uint64_t)seed + 2;
        cn_sim_run(&one, &result);
        elapsed += result.elapsed_us / SEEDS;
        share += 1 / result.share / SEEDS;
    }
    result.elapsed_us = elapsed;
    result.share = 1 / share;
    printf("%8zu %5.0f %5llu %5.0f%% %8.1f %7.1f%% %10.3f %6llu %6llu %6llu %6llu %7.2f\n", size,
           (double)rate / 1e6, (unsigned long long)rtt_ms, 100 * loss, bdps, 100 * result.share,
           (double)result.elapsed_us / 1e6, (unsigned long long)result.retransmissions,
           (unsigned long long)result.spurious, (unsigned long long)result.up.overflowed,
           (unsigned long long)result.repeats / 18, result.controller.bandwidth * 8 / 1e6);
}

static void all(bool download)
{
    for (size_t s = 0; s < 3; s++)
        for (size_t r = 0; r < 3; r++)
            for (size_t t = 0; t < 4; t++)
                for (size_t l = 0; l < 4; l++)
                    if (s < 2 || r == 2)
                        row(sizes[s], rates[r], rtts_ms[t], losses[l], download);
}

int main(int argc, char **argv)
{
    bool download = argc > 1 && strcmp(argv[1], "down") == 0;
    char **cell = argv + 1 + download;

    if (argc == 5 + download) {
        row(strtoul(cell[0], NULL, 10), (uint64_t)(1e6 * strtod(cell[1], NULL)),
            strtoul(cell[2], NULL, 10), strtod(cell[3], NULL) / 100, download);
        return 0;
    }
    printf("   bytes Mbit/s   ms   loss     BDPs   share    seconds  again   wrong   drop  twice  "
           "bw\n");
    all(download);
    return 0;
}
