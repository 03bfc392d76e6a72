// bench_learning.c - rounds and bytes that a rule of the codec needs, in one process.
//
// usage: bench_learning TASK MODEL DATA_DIRECTORY SEED STEPS ROUNDS TARGET UP DOWN [SNAPSHOT [KEEP
//        [KEPT [AHEAD [WARM [RATE]]]]]]
// TASK is digits (client-N-images.npy and -labels.npy; measured by accuracy) or text (client-N.txt;
// measured in bits a character), with held-out-images.npy or held-out.txt beside them. A rule is
// raw32, bf16, q8, q4, sign or topk:DENSITY:BITS; with ":signs" behind UP small tensors travel as
// signs both ways (update.small). Four clients train STEPS steps a round; encoding,
// error feedback at both ends, folding and versions are those of the programs; with SNAPSHOT every
// SNAPSHOT-th version is rounded to its snapshot. With KEEP 1 clients keep the optimizer's state
// across rounds; else each round begins without one. Two options that no program has, for
// ablations: KEPT is the share of a client's residual that is kept for the next round, and AHEAD
// the share of it that its training starts from, beyond the version; 1 and 0 if absent. WARM is
// update.warm_up, RATE server.learning_rate; 0 and 1 if absent. Each line: round, measure, bytes of
// frames up and down of one client so far. Ends at the target.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/fold.h"
#include "aggregator/merge/strategy.h"
#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/port/platform.h"

#define CLIENTS 4
#define BATCH 32

// What is learnt, by which rules.
struct task {
    const char *name, *inputs, *labels; // files of a set, by its name
    bool bits;                          // measured in bits, else by accuracy
    double scale;
    float learning_rate, momentum;
    struct cn_rules rules;
};

static const struct task tasks[] = {
    {.name = "digits",
     .inputs = "%s/%s-images.npy",
     .labels = "%s/%s-labels.npy",
     .scale = 0.0625,
     .learning_rate = 0.05f,
     .momentum = 0.9f},
    {.name = "text",
     .inputs = "%s/%s.txt",
     .labels = "%s/%s.txt:next",
     .bits = true,
     .scale = 1,
     .learning_rate = 0.003f,
     .rules = {.optimizer = CN_OPTIMIZER_ADAM, .window = 32, .stride = 5}},
};

struct bench {
    const struct task *task;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    const struct cn_layout *layout;
    struct cn_dataset *sets[CLIENTS], *held_out;
    struct cn_batch batch;
    float *weights, *mean, *change, *next, *server_residual, *residuals[CLIENTS];
    struct cn_update_rule up, down;
    bool signs;                                    // small tensors are signs
    float *optimizers[CLIENTS], *seconds[CLIENTS]; // zeros at first
    uint64_t updates[CLIENTS];                     // Adam's t
    float kept, ahead;                             // shares of a residual
    float rate;                                    // of the server
    uint32_t warm_up;                              // rounds
    bool keep;
    uint32_t steps, snapshot;
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
        const char *name = cn_update_mode_name((enum cn_update_mode)mode);
        if (mode != CN_UPDATE_TOPK && strncmp(text, name, strcspn(text, ":")) == 0 &&
            !name[strcspn(text, ":")]) {
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
    struct cn_dataset_config config = {.files = {.inputs = inputs, .labels = labels},
                                       .rules = &bench->task->rules,
                                       .scale = bench->task->scale,
                                       .seed = seed};
    struct cn_sample_shape shape;
    struct cn_dataset *set;
    static struct cn_diag diag;

    snprintf(inputs, sizeof(inputs), bench->task->inputs, directory, name);
    snprintf(labels, sizeof(labels), bench->task->labels, directory, name);
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

static void open_bench(struct bench *bench, const char *path, const char *directory, uint64_t seed)
{
    struct cn_trainer_config config = {
        .compute = &cn_compute_cpu,
        .threads = 1,
        .batch = BATCH,
        .learning_rate = bench->task->learning_rate,
        .momentum = bench->task->momentum,
        .rules = &bench->task->rules,
        .seed = seed,
    };
    static struct cn_diag diag;
    static struct cn_mapping model; // mapped until the end
    struct cn_sample_shape shape;

    check(cn_platform_map(path, 1u << 30, &model), path);
    check(cn_onnx_open(model.data, model.size, &diag, &bench->onnx), path);
    check(cn_trainer_open(bench->onnx, &config, &diag, &bench->trainer), path);
    bench->layout = cn_trainer_layout(bench->trainer);
    cn_trainer_sample_shape(bench->trainer, &shape);
    check(cn_batch_init(&shape, BATCH, &bench->batch), "memory");
    for (int i = 0; i < CLIENTS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "client-%d", i + 1);
        bench->sets[i] = open_set(bench, directory, name, seed);
        bench->residuals[i] = row(bench);
        bench->optimizers[i] = row(bench);
        bench->seconds[i] = row(bench);
    }
    bench->held_out = open_set(bench, directory, "held-out", seed);
    bench->weights = row(bench);
    bench->mean = row(bench);
    bench->change = row(bench);
    bench->next = row(bench);
    bench->server_residual = row(bench);
    check(cn_trainer_get_weights(bench->trainer, bench->weights), "weights");
}

// Gives the trainer what a client begins a round with: weights, and its optimizer's state or none.
static void load(struct bench *bench, int client, uint32_t round)
{
    struct cn_trainer *trainer = bench->trainer;
    float *residual = bench->residuals[client];

    for (size_t i = 0; i < bench->layout->total; i++) {
        residual[i] *= bench->kept;
        bench->next[i] = bench->weights[i] + bench->ahead * residual[i];
    }
    check(cn_trainer_set_weights(trainer, bench->next), "weights");
    check(cn_trainer_set_optimizer(trainer, bench->keep ? bench->optimizers[client] : NULL),
          "optimizer");
    if (cn_trainer_has_second(trainer))
        check(cn_trainer_set_second(trainer, bench->keep ? bench->seconds[client] : NULL),
              "optimizer");
    cn_trainer_set_step(trainer, (uint64_t)(round - 1) * bench->steps,
                        bench->keep ? bench->updates[client] : 0);
}

// Sets change to what a client's training changed, and keeps its optimizer's state.
static void take(struct bench *bench, int client)
{
    struct cn_trainer *trainer = bench->trainer;

    check(cn_trainer_get_weights(trainer, bench->change), "weights");
    for (size_t i = 0; i < bench->layout->total; i++)
        bench->change[i] -= bench->weights[i] + bench->ahead * bench->residuals[client][i];
    if (!bench->keep)
        return;
    check(cn_trainer_get_optimizer(trainer, bench->optimizers[client]), "optimizer");
    if (cn_trainer_has_second(trainer))
        check(cn_trainer_get_second(trainer, bench->seconds[client]), "optimizer");
    bench->updates[client] = cn_trainer_updates(trainer);
}

// Returns the rule of a round. Its density is higher in the first rounds, as boards have it.
static struct cn_update_rule rule_up(const struct bench *bench, uint32_t round)
{
    struct cn_update_rule rule = bench->up;
    double density = 0.25;

    for (uint32_t i = 1; i < round; i++)
        density *= 0.4;
    if (round <= bench->warm_up && density > rule.density)
        rule.density = density;
    return rule;
}

// One client's round; its frame goes into the fold.
static void train(struct bench *bench, int client, uint32_t round, struct cn_fold *fold)
{
    struct cn_update_header header = {
        .round = round, .rule = rule_up(bench, round), .small_signs = bench->signs};
    struct cn_buffer frame;

    load(bench, client, round);
    for (uint32_t step = 0; step < bench->steps; step++) {
        struct cn_metrics metrics = {0};

        cn_dataset_train_batch(bench->sets[client], (round - 1) * bench->steps + step, BATCH,
                               &bench->batch);
        check(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), "a step");
        check(cn_trainer_apply(bench->trainer, BATCH), "a step");
    }
    take(bench, client);
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
    struct cn_update_header header = {
        .round = round, .weight = 1, .rule = bench->down, .small_signs = bench->signs};
    header.rounded = bench->snapshot && round % bench->snapshot == 0;
    struct cn_fold *fold;
    struct cn_buffer frame;

    check(cn_fold_open(bench->layout, &caps, &fold), "fold");
    for (int client = 0; client < CLIENTS; client++)
        train(bench, client, round, fold);
    check(cn_fold_finish(fold, bench->mean), "fold");
    cn_fold_close(fold);
    for (size_t i = 0; i < bench->layout->total; i++)
        bench->mean[i] *= bench->rate;
    cn_buffer_init(&frame, cn_update_size_max(bench->layout));
    check(cn_strategy_publish(&header, bench->layout, bench->weights, bench->mean,
                              bench->server_residual, bench->weights, bench->next, &frame),
          "publishing");
    memcpy(bench->server_residual, bench->next, bench->layout->total * sizeof(float));
    bench->bytes_down += frame.size;
    cn_buffer_deinit(&frame);
}

// Accuracy, or bits a row.
static double measure(struct bench *bench)
{
    uint64_t count = cn_dataset_count(bench->held_out, CN_SPLIT_ALL);
    struct cn_metrics metrics = {0};

    check(cn_trainer_set_weights(bench->trainer, bench->weights), "weights");
    for (uint64_t first = 0; first < count; first += bench->batch.count) {
        cn_dataset_range(bench->held_out, CN_SPLIT_ALL, first, BATCH, &bench->batch);
        check(cn_trainer_evaluate(bench->trainer, &bench->batch, &metrics), "measuring");
    }
    return bench->task->bits ? cn_metrics_row_loss(&metrics) / (double)metrics.rows / M_LN2
                             : (double)metrics.correct / (double)metrics.rows;
}

static bool is_reached(const struct bench *bench, double measured, double target)
{
    return bench->task->bits ? measured <= target : measured >= target;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    unsigned long rounds;
    double target, measured;
    bool reached = false;

    for (size_t i = 0; argc >= 10 && i < sizeof(tasks) / sizeof(tasks[0]); i++)
        if (strcmp(argv[1], tasks[i].name) == 0)
            bench.task = &tasks[i];
    if (!bench.task) {
        fprintf(stderr, "usage: bench_learning digits|text MODEL DATA_DIRECTORY SEED STEPS ROUNDS "
                        "TARGET UP DOWN [SNAPSHOT [KEEP [KEPT [AHEAD [WARM [RATE]]]]]]\n");
        return 2;
    }
    bench.steps = (uint32_t)strtoul(argv[5], NULL, 10);
    rounds = strtoul(argv[6], NULL, 10);
    target = strtod(argv[7], NULL);
    parse_rule(argv[8], &bench.up);
    parse_rule(argv[9], &bench.down);
    bench.signs = strstr(argv[8], ":signs") != NULL;
    bench.snapshot = argc > 10 ? (uint32_t)strtoul(argv[10], NULL, 10) : 0;
    bench.keep = argc > 11 && strtoul(argv[11], NULL, 10);
    bench.kept = argc > 12 ? strtof(argv[12], NULL) : 1;
    bench.ahead = argc > 13 ? strtof(argv[13], NULL) : 0;
    bench.warm_up = argc > 14 ? (uint32_t)strtoul(argv[14], NULL, 10) : 0;
    bench.rate = argc > 15 ? strtof(argv[15], NULL) : 1;
    open_bench(&bench, argv[2], argv[3], strtoull(argv[4], NULL, 10));
    for (uint32_t round = 1; round <= rounds && !reached; round++) {
        do_round(&bench, round);
        measured = measure(&bench);
        reached = is_reached(&bench, measured, target);
        printf("%u %.4f %llu %llu\n", round, measured,
               (unsigned long long)(bench.bytes_up / CLIENTS),
               (unsigned long long)bench.bytes_down);
        fflush(stdout);
    }
    return 0;
}
