// bench_robust.c - what a run learns although some of its groups attack, in one process.
//
// usage: bench_robust DIRECTORY MODEL SEED ROUNDS RULE MIX TOLERATE LIARS ATTACK UP STATE
// DIRECTORY has the sets group-1 to group-8 and, of the first two, flip-1, flip-2, back-1 and
// back-2 with other labels or pixels; held-out; and trigger: what the backdoor shall turn into
// zeros (NAME-images.npy, NAME-labels.npy). RULE is trust (no caps), none (caps) or a robust rule,
// ATTACK a name of the table below, UP raw32, q8 or topk. STATE is an empty directory. Group 1, and
// with two LIARS group 2, attack in every round. Admission, caps, rules and versions are the
// gateway's: updates are frames in a store, accepted in a ledger. Prints the mean accuracy of the
// last five versions, and the share of triggers that the last version takes for zeros, in per cent.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/fold.h"
#include "aggregator/merge/merge.h"
#include "aggregator/merge/robust.h"
#include "aggregator/store/spool_name.h"
#include "ports/cpu/compute_cpu.h"
#include "runtime/base/log.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/port/platform.h"
#include "runtime/update/residual.h"
#include "tests/support/layouts.h"

#define GROUPS 8
#define BATCH 32
#define STEPS 20
#define LAST 5

enum attack { NONE, FLIP, SCALE, NOISE, ALIE, IPM, BACKDOOR };

static const struct {
    const char *name;
    enum attack kind;
    float value;
} attacks[] = {
    {"none", NONE, 0},         {"label-flip", FLIP, 1},     {"minus-1", SCALE, -1},
    {"minus-10", SCALE, -10},  {"minus-100", SCALE, -100},  {"noise", NOISE, 10},
    {"alie", ALIE, 1.5f},      {"ipm-0.5", IPM, 0.5f},      {"ipm-4", IPM, 4},
    {"backdoor", BACKDOOR, 4}, {"backdoor-1", BACKDOOR, 1},
};

struct bench {
    struct cn_trainer *trainer;
    const struct cn_layout *layout;
    struct cn_dataset *sets[GROUPS], *bad[GROUPS], *held_out, *trigger;
    struct cn_batch batch;
    struct cn_job job;
    size_t liars;
    enum attack attack;
    float value;
    float *changes[GROUPS], *residuals[GROUPS], *next, *mean, *deviation;
    struct cn_store *store;
    struct cn_ledger *ledger;
    struct cn_model model;
    uint8_t graph[CN_DIGEST_SIZE];
    double accuracy[LAST];
};

static void check(cn_err err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "bench_robust: %s: %s\n", what, cn_err_text(err));
    exit(1);
}

static float *row(const struct bench *bench)
{
    float *values = calloc(bench->layout->total, sizeof(float));

    check(values ? CN_OK : CN_ENOMEM, "memory");
    return values;
}

static struct cn_dataset *open_set(const struct bench *bench, const char *directory,
                                   const char *name, size_t number)
{
    static const struct cn_rules rules;
    char inputs[512], labels[512], which[24] = "";
    struct cn_dataset_config config = {.files = {.inputs = inputs, .labels = labels},
                                       .rules = &rules,
                                       .scale = 0.0625,
                                       .seed = bench->job.seed};
    struct cn_sample_shape shape;
    struct cn_dataset *set;
    static struct cn_diag diag;

    if (number)
        snprintf(which, sizeof(which), "-%zu", number);
    snprintf(inputs, sizeof(inputs), "%s/%s%s-images.npy", directory, name, which);
    snprintf(labels, sizeof(labels), "%s/%s%s-labels.npy", directory, name, which);
    cn_trainer_sample_shape(bench->trainer, &shape);
    check(cn_dataset_open(&config, &shape, &diag, &set), inputs);
    return set;
}

// --- training and attacks ---

// Trains one group's steps from the newest version; sets change to what it learned.
static void train(struct bench *bench, struct cn_dataset *set, uint32_t round, float *change)
{
    const float *weights = cn_model_weights(&bench->model);

    check(cn_trainer_set_weights(bench->trainer, weights), "weights");
    check(cn_trainer_set_optimizer(bench->trainer, NULL), "optimizer");
    for (uint32_t step = 0; step < STEPS; step++) {
        struct cn_metrics metrics = {0};

        cn_dataset_train_batch(set, (round - 1) * STEPS + step, BATCH, &bench->batch);
        check(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), "a step");
        check(cn_trainer_apply(bench->trainer, BATCH), "a step");
    }
    check(cn_trainer_get_weights(bench->trainer, change), "weights");
    for (size_t i = 0; i < bench->layout->total; i++)
        change[i] -= weights[i];
}

// Finds mean and standard deviation of the honest groups' changes.
static void look_at_honest(struct bench *bench)
{
    size_t honest = GROUPS - bench->liars;

    for (size_t i = 0; i < bench->layout->total; i++) {
        double sum = 0, squares = 0;

        for (size_t g = bench->liars; g < GROUPS; g++)
            sum += (double)bench->changes[g][i];
        sum /= (double)honest;
        for (size_t g = bench->liars; g < GROUPS; g++)
            squares += pow((double)bench->changes[g][i] - sum, 2);
        bench->mean[i] = (float)sum;
        bench->deviation[i] = (float)sqrt(squares / (double)honest);
    }
}

static void send_noise(struct bench *bench, uint64_t seed, float *change)
{
    double norm = 0;

    for (size_t i = 0; i < bench->layout->total; i++)
        norm += (double)bench->mean[i] * (double)bench->mean[i];
    norm = sqrt(norm / (double)bench->layout->total) * (double)bench->value;
    cn_test_fill(change, bench->layout->total, seed, (float)norm);
}

// Replaces a liar's honest change by what it sends.
static void attack(struct bench *bench, size_t liar, uint32_t round)
{
    float *change = bench->changes[liar];

    if (bench->attack == NOISE)
        send_noise(bench, bench->job.seed * 1000000 + round * 10 + liar, change);
    for (size_t i = 0; i < bench->layout->total; i++) {
        if (bench->attack == ALIE)
            change[i] = bench->mean[i] - bench->value * bench->deviation[i];
        else if (bench->attack == IPM)
            change[i] = -bench->value * bench->mean[i];
        else if (bench->attack == SCALE || bench->attack == BACKDOOR)
            change[i] *= bench->value;
        change[i] = change[i] > 16 ? 16 : change[i] < -16 ? -16 : change[i];
    }
}

// --- the gateway's part ---

// Sends a group's change as a frame, with error feedback if it is honest, and has it accepted.
static void send_update(struct bench *bench, size_t group, uint32_t round)
{
    bool honest = group >= bench->liars || bench->attack == NONE;
    struct cn_update_header header = {
        .run = 1, .round = round, .rule = bench->job.up, .weight = STEPS * BATCH};
    struct cn_ledger_contribution accepted = {.round = round, .weight = header.weight, .boards = 1};
    struct cn_buffer frame;
    char name[CN_SPOOL_NAME_SIZE];

    snprintf(header.group, sizeof(header.group), "group-%zu", group + 1);
    memcpy(header.base, bench->model.digest, CN_DIGEST_SIZE);
    cn_buffer_init(&frame, cn_update_size_max(bench->layout));
    check(cn_residual_encode(&header, bench->layout, bench->changes[group],
                             honest ? bench->residuals[group] : NULL, bench->next, &frame),
          "encoding");
    memcpy(bench->residuals[group], bench->next, bench->layout->total * sizeof(float));
    memcpy(accepted.group, header.group, sizeof(accepted.group));
    memcpy(accepted.board, header.group, sizeof(accepted.board));
    accepted.size = frame.size;
    cn_crypto_digest(frame.data, frame.size, accepted.digest);
    cn_spool_name(round, accepted.group, name);
    check(cn_store_replace(bench->store, name, frame.data, frame.size), name);
    check(cn_ledger_accept(bench->ledger, &accepted), "the ledger");
    cn_buffer_deinit(&frame);
}

static void do_round(struct bench *bench, uint32_t round)
{
    struct cn_merge_cuts cuts;
    const struct cn_merge_config config = {
        .store = bench->store,
        .ledger = bench->ledger,
        .layout = bench->layout,
        .job = &bench->job,
        .graph = bench->graph,
        .cuts = &cuts,
    };
    struct cn_model next;

    for (size_t g = 0; g < GROUPS; g++) {
        bool bad = g < bench->liars && (bench->attack == FLIP || bench->attack == BACKDOOR);

        train(bench, bad ? bench->bad[g] : bench->sets[g], round, bench->changes[g]);
    }
    look_at_honest(bench);
    for (size_t g = 0; g < bench->liars; g++)
        attack(bench, g, round);
    check(cn_ledger_open_round(bench->ledger, round), "the ledger");
    for (size_t g = 0; g < GROUPS; g++)
        send_update(bench, g, round);
    check(cn_ledger_close_round(bench->ledger, round), "the ledger");
    check(cn_merge_round(&config, &bench->model, &next), "merging");
    cn_model_deinit(&bench->model);
    bench->model = next;
}

// Returns the share of a set's samples that the newest version gets right.
static double measure(struct bench *bench, struct cn_dataset *set)
{
    uint64_t count = cn_dataset_count(set, CN_SPLIT_ALL);
    struct cn_metrics metrics = {0};

    check(cn_trainer_set_weights(bench->trainer, cn_model_weights(&bench->model)), "weights");
    for (uint64_t first = 0; first < count; first += bench->batch.count) {
        cn_dataset_range(set, CN_SPLIT_ALL, first, BATCH, &bench->batch);
        check(cn_trainer_evaluate(bench->trainer, &bench->batch, &metrics), "measuring");
    }
    return (double)metrics.correct / (double)metrics.rows;
}

// --- opening ---

static void open_trainer(struct bench *bench, const char *path)
{
    static const struct cn_rules rules;
    struct cn_trainer_config config = {
        .compute = &cn_compute_cpu,
        .threads = 1,
        .batch = BATCH,
        .learning_rate = 0.05f,
        .momentum = 0.9f,
        .rules = &rules,
        .seed = bench->job.seed,
    };
    static struct cn_diag diag;
    static struct cn_mapping model; // mapped until the end
    static struct cn_onnx *onnx;    // open until the end
    struct cn_sample_shape shape;
    float *weights;

    check(cn_platform_map(path, 1u << 30, &model), path);
    check(cn_onnx_open(model.data, model.size, &diag, &onnx), path);
    check(cn_trainer_open(onnx, &config, &diag, &bench->trainer), path);
    bench->layout = cn_trainer_layout(bench->trainer);
    cn_trainer_sample_shape(bench->trainer, &shape);
    check(cn_batch_init(&shape, BATCH, &bench->batch), "memory");
    weights = row(bench);
    check(cn_trainer_get_weights(bench->trainer, weights), "weights");
    check(cn_model_seal(&bench->model, bench->graph, bench->layout, weights), "version 0");
    free(weights);
}

static void open_sets(struct bench *bench, const char *directory)
{
    for (size_t g = 0; g < GROUPS; g++) {
        bench->sets[g] = open_set(bench, directory, "group", g + 1);
        bench->changes[g] = row(bench);
        bench->residuals[g] = row(bench);
        if (g < bench->liars && bench->attack == FLIP)
            bench->bad[g] = open_set(bench, directory, "flip", g + 1);
        if (g < bench->liars && bench->attack == BACKDOOR)
            bench->bad[g] = open_set(bench, directory, "back", g + 1);
    }
    bench->held_out = open_set(bench, directory, "held-out", 0);
    bench->trigger = open_set(bench, directory, "trigger", 0);
    bench->next = row(bench);
    bench->mean = row(bench);
    bench->deviation = row(bench);
}

// A word that is not in a table would silently measure something else.
static void require(bool known, const char *word)
{
    if (known)
        return;
    fprintf(stderr, "bench_robust: unknown word '%s'\n", word);
    exit(2);
}

static void parse_rule(struct bench *bench, const char *rule, const char *mix)
{
    static const char *const mixes[] = {"none", "bucket", "nearest"};

    bool known = strcmp(rule, "trust") == 0, mixed = false;

    bench->job.trust_groups = known;
    for (int i = 0; i <= CN_ROBUST_CCLIP; i++)
        if (strcmp(rule, cn_robust_rule_name((enum cn_robust_rule)i)) == 0) {
            bench->job.robust.rule = (enum cn_robust_rule)i;
            known = true;
        }
    for (int i = 0; i <= CN_ROBUST_MIX_NEAREST; i++)
        if (strcmp(mix, mixes[i]) == 0) {
            bench->job.robust.mix = (enum cn_robust_mix)i;
            mixed = true;
        }
    require(known, rule);
    require(mixed, mix);
}

static void parse(struct bench *bench, char **argv)
{
    static const struct cn_update_rule modes[] = {
        {.mode = CN_UPDATE_RAW32},
        {.mode = CN_UPDATE_Q8},
        {.mode = CN_UPDATE_TOPK, .density = 0.05, .value_bits = 2}};

    bool attack = false, mode = false;

    bench->job.seed = strtoull(argv[3], NULL, 10);
    parse_rule(bench, argv[5], argv[6]);
    bench->job.robust.tolerate = (uint32_t)strtoul(argv[7], NULL, 10);
    bench->liars = strtoul(argv[8], NULL, 10) > 1 ? 2 : 1;
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
        if (strcmp(argv[9], attacks[i].name) == 0) {
            bench->attack = attacks[i].kind;
            bench->value = attacks[i].value;
            attack = true;
        }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(argv[10], cn_update_mode_name(modes[i].mode)) == 0) {
            bench->job.up = modes[i];
            mode = true;
        }
    require(attack, argv[9]);
    require(mode, argv[10]);
    bench->job.down.mode = CN_UPDATE_Q8;
    bench->job.quorum = GROUPS;
}

static void open_gateway(struct bench *bench, const char *directory)
{
    check(cn_platform_open_store(directory, &bench->store), directory);
    check(cn_ledger_open(directory, &bench->ledger), directory);
}

static void print_results(struct bench *bench)
{
    double sum = 0;

    for (size_t i = 0; i < LAST; i++)
        sum += bench->accuracy[i];
    printf("%.2f %.2f\n", 100 * sum / LAST, 100 * measure(bench, bench->trigger));
}

int main(int argc, char **argv)
{
    static struct bench bench;
    uint32_t rounds;

    if (argc != 12) {
        fprintf(stderr, "usage: bench_robust DIRECTORY MODEL SEED ROUNDS RULE MIX TOLERATE LIARS "
                        "ATTACK raw32|q8|topk STATE\n");
        return 2;
    }
    cn_log_set_level(CN_LOG_ERROR);
    rounds = (uint32_t)strtoul(argv[4], NULL, 10);
    parse(&bench, argv);
    open_trainer(&bench, argv[2]);
    open_sets(&bench, argv[1]);
    open_gateway(&bench, argv[11]);
    for (uint32_t round = 1; round <= rounds; round++) {
        do_round(&bench, round);
        bench.accuracy[round % LAST] = measure(&bench, bench.held_out);
    }
    print_results(&bench);
    cn_ledger_close(bench.ledger);
    bench.store->ops->close(bench.store);
    return 0;
}
