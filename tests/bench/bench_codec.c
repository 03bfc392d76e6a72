// bench_codec.c - how fast the codec is on one core and how close its bits are to their entropy.
//
// usage: bench_codec [coordinates]
// The values are made up, with a bell curve and with long tails. The entropy is the empirical one
// of gaps, signs and levels over a whole frame; block heads and checksums are reported apart. Rates
// are bytes of float32 in a second of processor time, the best of five; encoding includes the
// residual.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/merge/fold.h"
#include "runtime/update/residual.h"
#include "runtime/update/update.h"
#include "tests/support/layouts.h"

#define BLOCK 4096
#define LEVELS 256

struct bench {
    struct cn_layout layout;
    float *values, *decoded, *zeros;
    struct cn_buffer frame;
    struct cn_fold *fold;
    struct cn_update_header header;
};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double entropy(const size_t *histogram, size_t size, size_t count)
{
    double bits = 0;

    for (size_t i = 0; i < size; i++) {
        if (histogram[i])
            bits -= (double)histogram[i] * log2((double)histogram[i] / (double)count);
    }
    return bits;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

// The levels of a block are its distinct magnitudes, in order.
static void count_levels(const float *values, size_t count, size_t histogram[LEVELS])
{
    float magnitudes[BLOCK];
    size_t sent = 0;
    size_t level = 0;

    for (size_t i = 0; i < count; i++) {
        if (values[i] != 0)
            magnitudes[sent++] = fabsf(values[i]);
    }
    qsort(magnitudes, sent, sizeof(float), compare);
    for (size_t i = 0; i < sent; i++) {
        level += i > 0 && magnitudes[i] > magnitudes[i - 1];
        histogram[level < LEVELS ? level : LEVELS - 1]++;
    }
}

// Bits that an ideal coder would spend on what the frame says.
static double ideal_bits(const struct bench *bench, size_t *sent)
{
    size_t *gaps = calloc(BLOCK, sizeof(*gaps));
    size_t levels[LEVELS] = {0};
    double bits;

    *sent = 0;
    for (size_t start = 0; start < bench->layout.total; start += BLOCK) {
        size_t count = bench->layout.total - start < BLOCK ? bench->layout.total - start : BLOCK;
        size_t next = 0;

        for (size_t i = 0; i < count; i++) {
            if (bench->decoded[start + i] == 0)
                continue;
            gaps[i - next]++;
            next = i + 1;
            ++*sent;
        }
        count_levels(bench->decoded + start, count, levels);
    }
    bits = entropy(gaps, BLOCK, *sent) + entropy(levels, LEVELS, *sent) + (double)*sent;
    free(gaps);
    return bits;
}

// With the residual: adding it before, and what is left out after, which takes the own decoding.
static cn_err encode(struct bench *bench)
{
    bench->frame.size = 0;
    return cn_residual_encode(&bench->header, &bench->layout, bench->values, bench->zeros,
                              bench->decoded, &bench->frame);
}

static cn_err check(struct bench *bench)
{
    struct cn_update_header header;

    return cn_update_check(bench->frame.data, bench->frame.size, &bench->layout, NULL, &header);
}

static cn_err apply(struct bench *bench)
{
    return cn_update_apply(bench->frame.data, bench->frame.size, &bench->layout, bench->decoded);
}

static cn_err fold(struct bench *bench)
{
    return cn_fold_add(bench->fold, bench->frame.data, bench->frame.size, 1, NULL);
}

static cn_err copy(struct bench *bench)
{
    memcpy(bench->decoded, bench->values, bench->layout.total * sizeof(float));
    return CN_OK;
}

// GB/s of float32.
static double rate(struct bench *bench, cn_err (*run)(struct bench *bench))
{
    double best = 1e9;

    for (int i = 0; i < 5; i++) {
        double start = now();
        double elapsed;

        if (run(bench)) {
            fprintf(stderr, "bench_codec: a call failed\n");
            exit(1);
        }
        elapsed = now() - start;
        best = elapsed < best ? elapsed : best;
    }
    return (double)bench->layout.total * 4e-9 / best;
}

static void measure(struct bench *bench, const char *what)
{
    double encode_rate = rate(bench, encode);
    double heads = 0;
    double ratio = 0;
    size_t sent = bench->layout.total;

    if (bench->header.rule.mode == CN_UPDATE_TOPK) {
        memset(bench->decoded, 0, bench->layout.total * sizeof(float));
        if (apply(bench))
            exit(1);
        double ideal = ideal_bits(bench, &sent);
        size_t blocks = (bench->layout.total + BLOCK - 1) / BLOCK;

        // Head, codes and CRC; a block's last byte is half empty on average.
        heads = (double)blocks * 8 * (3 + (bench->header.rule.value_bits ? 4 : 2) + 2);
        ratio = ((double)bench->frame.size * 8 - heads - 8 * 112) / ideal;
    }
    printf("%-28s %6.2f GB/s encode %6.2f check", what, encode_rate, rate(bench, check));
    printf(" %6.2f apply %6.2f fold %6.2f memcpy", rate(bench, apply), rate(bench, fold),
           rate(bench, copy));
    printf("  %7.4f bit/coordinate, %.4f of it heads",
           (double)bench->frame.size * 8 / (double)bench->layout.total,
           heads / (double)bench->layout.total);
    if (ratio > 0)
        printf(", payload %.3f x entropy", ratio);
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct cn_fold_caps caps = {0};
    static const double densities[] = {0.01, 0.05, 0.1};
    static const enum cn_update_mode dense[] = {CN_UPDATE_SIGN, CN_UPDATE_Q4, CN_UPDATE_Q8,
                                                CN_UPDATE_BF16, CN_UPDATE_RAW32};
    const size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 4u << 20;
    const struct cn_test_tensor tensor = {count, CN_TENSOR_PARAM};
    struct bench bench = {.layout = cn_test_layout(&tensor, 1), .header = {.weight = 1}};

    bench.values = calloc(count, sizeof(float));
    bench.decoded = calloc(count, sizeof(float));
    bench.zeros = calloc(count, sizeof(float));
    cn_buffer_init(&bench.frame, cn_update_size_max(&bench.layout));
    if (!bench.values || !bench.decoded || !bench.zeros ||
        cn_fold_open(&bench.layout, &caps, &bench.fold))
        return 1;
    for (int tailed = 0; tailed < 2; tailed++) {
        (tailed ? cn_test_fill_tailed : cn_test_fill)(bench.values, count, 1, 0.01f);
        for (size_t i = 0; i < 6; i++) {
            char what[64];

            bench.header.rule = (struct cn_update_rule){
                .mode = CN_UPDATE_TOPK, .density = densities[i / 2], .value_bits = i % 2 ? 2 : 0};
            snprintf(what, sizeof(what), "%s, top %g %%, %u bits", tailed ? "tails" : "bell",
                     100 * bench.header.rule.density, bench.header.rule.value_bits);
            measure(&bench, what);
        }
    }
    for (size_t i = 0; i < sizeof(dense) / sizeof(dense[0]); i++) {
        bench.header.rule = (struct cn_update_rule){.mode = dense[i]};
        measure(&bench, cn_update_mode_name(dense[i]));
    }
    cn_fold_close(bench.fold);
    cn_buffer_deinit(&bench.frame);
    cn_test_layout_free(&bench.layout);
    free(bench.values);
    free(bench.decoded);
    free(bench.zeros);
    return 0;
}
