// bench_learning.c - rounds and bytes that a rule of the codec needs, in one process.
//
// usage: bench_learning DATA_DIRECTORY SEED STEPS ROUNDS TARGET UP DOWN
// A rule is raw32, bf16, q8, q4, sign or topk:DENSITY:BITS. Four clients, each with the samples of
// one board of the digits (mostly some of the digits), train STEPS steps a round; encoding, error
// feedback at both ends, folding and versions are those of the programs. Each line: round, accuracy
// on the held-out set, bytes of frames up and down of one client so far. Ends at the target.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/fold.h"
#include "aggregator/strategy.h"
#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/dataset.h"
#include "runtime/engine/trainer.h"
#include "runtime/port/platform.h"

#define CLIENTS 4
#define BATCH 32

struct bench {
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    const struct cn_layout *layout;
    struct cn_dataset *sets[CLIENTS], *held_out;
    struct cn_batch batch;
    float *weights, *mean, *change, *next, *server_residual, *residuals[CLIENTS];
    struct cn_update_rule up, down;
    uint32_t steps;
    uint64_t bytes_up, bytes_down; // of all clients, of one
};

static void check(cn_err err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "bench_learning: %s: %s\n", what, cn_err_text(err));
    exit(1);
}

static void parse_rule(const char *text, struct cn_update_rule *rule)
{
    *rule = (struct cn_update_rule){0};
    if (sscanf(text, "topk:%lf:%u", &rule->density, &rule->value_bits) == 2) {
        rule->mode = CN_UPDATE_TOPK;
        return;
    }
    for (int mode = CN_UPDATE_RAW32; mode <= CN_UPDATE_SIGN; mode++) {
        if (strcmp(text, cn_update_mode_name((enum cn_update_mode)mode)) == 0 &&
            mode != CN_UPDATE_TOPK) {
            rule->mode = (enum cn_update_mode)mode;
            return;
        }
    }
    check(CN_EINVAL, text);
}

static struct cn_dataset *open_set(const struct bench *bench, const char *directory,
                                   const char *name, uint64_t seed)
{
    char inputs[512], labels[512];
    struct cn_dataset_config config = {
        .files = {.inputs = inputs, .labels = labels}, .scale = 0.0625, .seed = seed};
    struct cn_sample_shape shape;
    struct cn_dataset *set;
    static struct cn_diag diag;

    snprintf(inputs, sizeof(inputs), "%s/%s-images.npy", directory, name);
    snprintf(labels, sizeof(labels), "%s/%s-labels.npy", directory, name);
    cn_trainer_sample_shape(bench->trainer, &shape);
    check(cn_dataset_open(&config, &shape, &diag, &set), inputs);
    return set;
}

static float *row(const struct bench *bench)
{
    float *values = calloc(bench->layout->total, sizeof(float));

    check(values ? CN_OK : CN_ENOMEM, "memory");
    return values;
}

static void open_bench(struct bench *bench, const char *directory, uint64_t seed)
{
    struct cn_trainer_config config = {
        .compute = &cn_compute_cpu,
        .threads = 1,
        .batch = BATCH,
        .learning_rate = 0.05f,
        .momentum = 0.9f,
        .seed = seed,
    };
    static struct cn_diag diag;
    static struct cn_mapping model; // mapped until the end
    struct cn_sample_shape shape;
    char path[512];

    snprintf(path, sizeof(path), "%s/digits-cnn.onnx", directory);
    check(cn_platform_map(path, 1u << 30, &model), path);
    check(cn_onnx_open(model.data, model.size, &diag, &bench->onnx), path);
    check(cn_trainer_open(bench->onnx, &config, &diag, &bench->trainer), path);
    bench->layout = cn_trainer_layout(bench->trainer);
    cn_trainer_sample_shape(bench->trainer, &shape);
    check(cn_batch_init(&shape, BATCH, &bench->batch), "memory");
    for (int i = 0; i < CLIENTS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "board-%d", i + 1);
        bench->sets[i] = open_set(bench, directory, name, seed);
        bench->residuals[i] = row(bench);
    }
    bench->held_out = open_set(bench, directory, "held-out", seed);
    bench->weights = row(bench);
    bench->mean = row(bench);
    bench->change = row(bench);
    bench->next = row(bench);
    bench->server_residual = row(bench);
    check(cn_trainer_get_weights(bench->trainer, bench->weights), "weights");
}

// One client's round; its frame goes into the fold.
static void train(struct bench *bench, int client, uint32_t round, struct cn_fold *fold)
{
    struct cn_update_header header = {.round = round, .rule = bench->up};
    struct cn_buffer frame;

    check(cn_trainer_set_weights(bench->trainer, bench->weights), "weights");
    check(cn_trainer_set_optimizer(bench->trainer, NULL), "optimizer");
    for (uint32_t step = 0; step < bench->steps; step++) {
        struct cn_metrics metrics = {0};

        cn_dataset_train_batch(bench->sets[client], (round - 1) * bench->steps + step, BATCH,
                               &bench->batch);
        check(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), "a step");
        check(cn_trainer_apply(bench->trainer, BATCH), "a step");
    }
    check(cn_trainer_get_weights(bench->trainer, bench->change), "weights");
    for (size_t i = 0; i < bench->layout->total; i++)
        bench->change[i] -= bench->weights[i];
    header.weight = (uint64_t)bench->steps * BATCH;
    cn_buffer_init(&frame, cn_update_size_max(bench->layout));
    check(cn_residual_encode(&header, bench->layout, bench->change, bench->residuals[client],
                             bench->next, &frame),
          "encoding");
    memcpy(bench->residuals[client], bench->next, bench->layout->total * sizeof(float));
    check(cn_fold_add(fold, frame.data, frame.size, header.weight, NULL), "folding");
    bench->bytes_up += frame.size;
    cn_buffer_deinit(&frame);
}

static void do_round(struct bench *bench, uint32_t round)
{
    const struct cn_fold_caps caps = {0};
    struct cn_update_header header = {.round = round, .weight = 1, .rule = bench->down};
    struct cn_fold *fold;
    struct cn_buffer frame;

    check(cn_fold_open(bench->layout, &caps, &fold), "fold");
    for (int client = 0; client < CLIENTS; client++)
        train(bench, client, round, fold);
    check(cn_fold_finish(fold, bench->mean), "fold");
    cn_fold_close(fold);
    cn_buffer_init(&frame, cn_update_size_max(bench->layout));
    check(cn_strategy_publish(&header, bench->layout, bench->weights, bench->mean,
                              bench->server_residual, bench->weights, bench->next, &frame),
          "publishing");
    memcpy(bench->server_residual, bench->next, bench->layout->total * sizeof(float));
    bench->bytes_down += frame.size;
    cn_buffer_deinit(&frame);
}

static double accuracy(struct bench *bench)
{
    uint64_t count = cn_dataset_count(bench->held_out, CN_SPLIT_ALL);
    struct cn_metrics metrics = {0};

    check(cn_trainer_set_weights(bench->trainer, bench->weights), "weights");
    for (uint64_t first = 0; first < count; first += bench->batch.count) {
        cn_dataset_range(bench->held_out, CN_SPLIT_ALL, first, BATCH, &bench->batch);
        check(cn_trainer_evaluate(bench->trainer, &bench->batch, &metrics), "measuring");
    }
    return (double)metrics.correct / (double)metrics.rows;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    unsigned long rounds;
    double target, reached = 0;

    if (argc != 8) {
        fprintf(stderr, "usage: bench_learning DATA_DIRECTORY SEED STEPS ROUNDS TARGET UP DOWN\n");
        return 2;
    }
    bench.steps = (uint32_t)strtoul(argv[3], NULL, 10);
    rounds = strtoul(argv[4], NULL, 10);
    target = strtod(argv[5], NULL);
    parse_rule(argv[6], &bench.up);
    parse_rule(argv[7], &bench.down);
    open_bench(&bench, argv[1], strtoull(argv[2], NULL, 10));
    for (uint32_t round = 1; round <= rounds && reached < target; round++) {
        do_round(&bench, round);
        reached = accuracy(&bench);
        printf("%u %.4f %llu %llu\n", round, reached,
               (unsigned long long)(bench.bytes_up / CLIENTS),
               (unsigned long long)bench.bytes_down);
        fflush(stdout);
    }
    return 0;
}
