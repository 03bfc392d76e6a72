// Models that are cut into parts, on every port: each cut gives the bits of the whole model.
//
// By default some cuts of each model are trained; with the argument "all" every legal cut into two
// parts, and more cuts into three and four. "all FILE LOSS" does so for another model, where LOSS
// is cross-entropy or mse (tests/peers/zoo/cuts.py).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/onnx/onnx_file.h"
#include "tests/contract/compute_trial.h"
#include "tests/contract/deep_model.h"
#include "tests/support/cut_check.h"

static bool all_cuts;
static uint32_t cuts_tried, cuts_tied; // by all tests

// A model of the tests; loss is what it ends with.
struct model_file {
    const char *path; // below the tests' data
    enum cn_loss loss;
};

static const struct model_file files[] = {
    {"models/autoencoder", CN_LOSS_MSE},
    {"models/average-pool", CN_LOSS_CROSS_ENTROPY},
    {"models/average-pool-pad", CN_LOSS_CROSS_ENTROPY},
    {"models/batch-norm", CN_LOSS_CROSS_ENTROPY},
    {"models/batch-norm-1d", CN_LOSS_CROSS_ENTROPY},
    {"models/conv-stride", CN_LOSS_CROSS_ENTROPY},
    {"models/depthwise", CN_LOSS_CROSS_ENTROPY},
    {"models/global-pool", CN_LOSS_CROSS_ENTROPY},
    {"models/grouped-norms", CN_LOSS_CROSS_ENTROPY},
    {"models/gru", CN_LOSS_CROSS_ENTROPY},
    {"models/gru-last-state", CN_LOSS_CROSS_ENTROPY},
    {"models/lenet", CN_LOSS_CROSS_ENTROPY},
    {"models/lstm", CN_LOSS_CROSS_ENTROPY},
    {"models/lstm-steps-first", CN_LOSS_CROSS_ENTROPY},
    {"models/mlp", CN_LOSS_CROSS_ENTROPY},
    {"models/regression", CN_LOSS_MSE},
    {"models/residual", CN_LOSS_CROSS_ENTROPY},
    {"models/resized", CN_LOSS_CROSS_ENTROPY},
    {"models/rnn", CN_LOSS_CROSS_ENTROPY},
    {"digits/digits-cnn", CN_LOSS_CROSS_ENTROPY},
    {"digits/digits-mlp", CN_LOSS_CROSS_ENTROPY},
    {"digits/digits-norm", CN_LOSS_CROSS_ENTROPY},
    {"digits/digits-rows", CN_LOSS_CROSS_ENTROPY},
    {"text/char-gpt", CN_LOSS_CROSS_ENTROPY},
    {"../examples/parts/model", CN_LOSS_CROSS_ENTROPY},
    {"forms/dynamo-buffer", CN_LOSS_CROSS_ENTROPY},
    {"forms/dynamo-folded", CN_LOSS_CROSS_ENTROPY},
    {"forms/dynamo-gpt", CN_LOSS_CROSS_ENTROPY},
    {"forms/dynamo-if", CN_LOSS_CROSS_ENTROPY},
    {"forms/dynamo-lstm", CN_LOSS_CROSS_ENTROPY},
    {"forms/einsum", CN_LOSS_CROSS_ENTROPY},
    {"forms/gru-reset-before", CN_LOSS_CROSS_ENTROPY},
    {"forms/half", CN_LOSS_CROSS_ENTROPY},
    {"forms/if", CN_LOSS_CROSS_ENTROPY},
    {"forms/lstm-cell", CN_LOSS_CROSS_ENTROPY},
    {"forms/places", CN_LOSS_CROSS_ENTROPY},
    {"forms/volume", CN_LOSS_CROSS_ENTROPY},
    {"losses/batch-size-model", CN_LOSS_OUTPUT},
    {"losses/batch-sum-model", CN_LOSS_OUTPUT},
    {"losses/constant-weights-model", CN_LOSS_OUTPUT},
    {"losses/each-label-model", CN_LOSS_OUTPUT},
    {"losses/half-term-model", CN_LOSS_OUTPUT},
    {"losses/ignored-term-model", CN_LOSS_OUTPUT},
    {"losses/mean-and-sum-model", CN_LOSS_OUTPUT},
    {"losses/padded-term-model", CN_LOSS_OUTPUT},
    {"losses/rows-of-zeros-model", CN_LOSS_OUTPUT},
    {"losses/summed-labels-model", CN_LOSS_OUTPUT},
    {"losses/weighted-term-model", CN_LOSS_OUTPUT},
};

#define FILE_COUNT (sizeof(files) / sizeof(files[0]))

static struct cn_trainer_config config_of(const struct cn_rules *rules, uint32_t threads)
{
    return (struct cn_trainer_config){.compute = trial_ports[0],
                                      .threads = threads,
                                      .rules = rules,
                                      .learning_rate = 0.01f,
                                      .momentum = 0.9f,
                                      .seed = 7};
}

// Trains cuts of one model with these rules, and prints what was tried.
static void check_model(const char *name, const void *data, size_t size, enum cn_loss loss,
                        const struct cn_rules *rules, uint32_t threads)
{
    struct cn_trainer_config config = config_of(rules, threads);
    struct cut_check check;
    struct cn_onnx *onnx;
    struct cn_diag diag;
    size_t step;
    bool same;

    config.loss = loss;
    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_open(data, size, &diag, &onnx), CN_OK);
    if (cut_check_open(&check, name, onnx, &config, &diag))
        fail_msg("%s: %s", name, cn_diag_first(&diag));
    step = all_cuts ? 1 : check.place_count / 3 + 1;
    same = cut_check_halves(&check, step) && cut_check_parts(&check, all_cuts ? 16 : 2);
    printf("%-28s %u threads: %zu nodes, %zu places, %u cuts trained, %u with tied tensors\n", name,
           threads, check.graph.loss + 1, check.place_count, check.cuts, check.tied);
    cuts_tried += check.cuts;
    cuts_tied += check.tied;
    cut_check_close(&check);
    cn_onnx_close(onnx);
    if (!same)
        fail_msg("%s", check.failed);
}

static void check_file(const struct model_file *file, struct cn_rules rules, uint32_t threads)
{
    struct cn_onnx_file model;
    char path[512];

    if (file->loss == CN_LOSS_OUTPUT)
        snprintf(rules.output, sizeof(rules.output), "loss");
    snprintf(path, sizeof(path), "%s/%s.onnx", CAIRN_TEST_DATA, file->path);
    assert_int_equal(cn_onnx_file_open(path, NULL, &model), CN_OK);
    check_model(file->path, model.data, model.size, file->loss, &rules, threads);
    cn_onnx_file_close(&model);
}

static void every_model_cut_anywhere_gives_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILE_COUNT; i++) {
        struct cn_rules rules = {0};

        check_file(&files[i], rules, 1);
        if (all_cuts && trial_thread_counts(trial_ports[0], 2) > 1)
            check_file(&files[i], rules, 2);
    }
}

// Adam, frozen tensors, normalization that is frozen, a proximal term, gradients that are clipped.
static void optimizers_and_frozen_layers_give_the_bits_of_the_whole(void **state)
{
    struct cn_rules adam = {.optimizer = CN_OPTIMIZER_ADAMW};
    struct cn_rules frozen = {.batch_norm = CN_BATCH_NORM_FROZEN};
    struct cn_rules clipped = {.clip = 0.01};

    (void)state;
    for (size_t i = 0; i < FILE_COUNT; i += all_cuts ? 1 : 6) {
        check_file(&files[i], adam, 1);
        check_file(&files[i], frozen, 1);
        check_file(&files[i], clipped, 1);
    }
}

static void a_weight_of_two_layers_is_held_by_both_parts(void **state)
{
    const struct cn_rules rules = {0};
    size_t size;
    const uint8_t *model = deep_model(&size);
    uint32_t before = cuts_tied;

    (void)state;
    for (uint32_t threads = 1; threads <= trial_thread_counts(trial_ports[0], 2); threads++)
        check_model("deep model, tied", model, size, CN_LOSS_CROSS_ENTROPY, &rules, threads);
    assert_true(cuts_tied > before);
}

static const char *other_path; // a model given by the user
static enum cn_loss other_loss;

static void another_model_cut_anywhere_gives_the_bits_of_the_whole(void **state)
{
    const struct cn_rules rules = {0}, clipped = {.clip = 0.01};
    struct cn_onnx_file model;
    struct cn_diag diag;

    (void)state;
    cn_diag_init(&diag);
    if (cn_onnx_file_open(other_path, &diag, &model))
        fail_msg("%s: %s", other_path, cn_diag_first(&diag));
    for (uint32_t threads = 1; threads <= trial_thread_counts(trial_ports[0], 2); threads++)
        check_model(other_path, model.data, model.size, other_loss, &rules, threads);
    check_model(other_path, model.data, model.size, other_loss, &clipped, 1);
    cn_onnx_file_close(&model);
}

static int run_chosen(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_cut_anywhere_gives_the_bits_of_the_whole),
        cmocka_unit_test(optimizers_and_frozen_layers_give_the_bits_of_the_whole),
        cmocka_unit_test(a_weight_of_two_layers_is_held_by_both_parts),
    };
    const struct CMUnitTest other[] = {
        cmocka_unit_test(another_model_cut_anywhere_gives_the_bits_of_the_whole),
    };

    return other_path ? cmocka_run_group_tests(other, NULL, NULL)
                      : cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int count, char **arguments)
{
    int failed;

    all_cuts = count > 1 && strcmp(arguments[1], "all") == 0;
    if (count > 3) {
        other_path = arguments[2];
        other_loss = strcmp(arguments[3], "mse") ? CN_LOSS_CROSS_ENTROPY : CN_LOSS_MSE;
    }
    failed = run_chosen();
    printf("%u cuts trained, %u with tied tensors\n", cuts_tried, cuts_tied);
    return failed;
}
