// bench_merge.c - the time of a merge by each rule, beside the plain mean.
//
// usage: bench_merge [GROUPS [COORDINATES]]
// Each group's update is a frame in memory, dense in q8 or top-k 5 %. The plain mean is that of
// fold.h, which also computes norms for the caps, once for each update before and once in the sum.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/merge/fold.h"
#include "aggregator/merge/robust.h"
#include "tests/support/frame_source.h"
#include "tests/support/layouts.h"

#define MOST 64

struct bench {
    struct cn_layout layout;
    struct cn_buffer frames[MOST];
    struct cn_robust_update updates[MOST];
    char names[MOST][24];
    size_t count;
    float *mean, *center;
};

static void check(cn_err err)
{
    if (!err)
        return;
    fprintf(stderr, "bench_merge: %s\n", cn_err_text(err));
    exit(1);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void make_frames(struct bench *bench, enum cn_update_mode mode)
{
    const struct cn_update_header header = {
        .weight = 100, .rule = {.mode = mode, .density = 0.05, .value_bits = 2}};

    for (size_t i = 0; i < bench->count; i++) {
        struct cn_buffer *frame = &bench->frames[i];

        cn_test_fill(bench->mean, bench->layout.total, i, 0.01f);
        cn_buffer_deinit(frame);
        cn_buffer_init(frame, cn_update_size_max(&bench->layout));
        check(cn_update_encode(&header, &bench->layout, bench->mean, bench->center, frame));
        snprintf(bench->names[i], sizeof(bench->names[i]), "g%02zu", i);
        bench->updates[i] = (struct cn_robust_update){
            .group = bench->names[i], .source = frame_source(frame), .weight = 100};
    }
}

static double time_norms(struct bench *bench)
{
    double begin = now_s();

    for (size_t i = 0; i < bench->count; i++) {
        struct cn_fold_norms norms;

        check(cn_fold_norms(&bench->layout, bench->frames[i].data, bench->frames[i].size, &norms));
        bench->updates[i].norm = norms.trained;
        bench->updates[i].statistics_norm = norms.statistics;
    }
    return now_s() - begin;
}

static double time_fold(struct bench *bench)
{
    const struct cn_fold_caps caps = {.max_norm = 1e6};
    struct cn_fold *fold;
    double begin = now_s();

    check(cn_fold_open(&bench->layout, &caps, &fold));
    for (size_t i = 0; i < bench->count; i++)
        check(cn_fold_add(fold, bench->frames[i].data, bench->frames[i].size, 100, NULL));
    check(cn_fold_finish(fold, bench->mean));
    cn_fold_close(fold);
    return now_s() - begin;
}

static double time_rule(struct bench *bench, const struct cn_robust *robust)
{
    const struct cn_robust_config config = {.layout = &bench->layout, .robust = robust, .round = 1};
    double begin = now_s();

    memset(bench->center, 0, bench->layout.total * sizeof(*bench->center));
    check(cn_robust_mean(&config, bench->updates, bench->count,
                         cn_robust_rows_kept(robust) ? bench->center : NULL, bench->mean));
    return now_s() - begin;
}

static void print_mode(struct bench *bench, enum cn_update_mode mode)
{
    static const char *const mixes[] = {"", ", bucket", ", nearest"};

    make_frames(bench, mode);
    printf("%s: norms %.2f s, plain mean %.2f s", cn_update_mode_name(mode), time_norms(bench),
           time_fold(bench));
    for (int rule = CN_ROBUST_MEDIAN; rule <= CN_ROBUST_CCLIP; rule++)
        for (int mix = CN_ROBUST_MIX_NONE; mix <= CN_ROBUST_MIX_NEAREST; mix += 2) {
            const struct cn_robust robust = {
                .rule = (enum cn_robust_rule)rule, .mix = (enum cn_robust_mix)mix, .tolerate = 2};

            printf(", %s%s %.2f s", cn_robust_rule_name(robust.rule), mixes[mix],
                   time_rule(bench, &robust));
            fflush(stdout);
        }
    printf("\n");
}

int main(int argc, char **argv)
{
    static struct bench bench;
    size_t total = argc > 2 ? strtoul(argv[2], NULL, 10) : 10000000;
    const struct cn_test_tensor tensor = {total, CN_TENSOR_PARAM};

    bench.count = argc > 1 ? strtoul(argv[1], NULL, 10) : 8;
    if (bench.count < 1 || bench.count > MOST || total < 1) {
        fprintf(stderr, "usage: bench_merge [GROUPS [COORDINATES]]; at most %d groups\n", MOST);
        return 2;
    }
    bench.layout = cn_test_layout(&tensor, 1);
    bench.mean = calloc(total, sizeof(float));
    bench.center = calloc(total, sizeof(float));
    check(bench.mean && bench.center ? CN_OK : CN_ENOMEM);
    print_mode(&bench, CN_UPDATE_Q8);
    print_mode(&bench, CN_UPDATE_TOPK);
    return 0;
}
