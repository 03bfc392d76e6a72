// A version is measured on one content of the central set, although its files are written to.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/run/evaluate.h"
#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/platform.h"

#define DIGITS CAIRN_TEST_DATA "/digits/"
#define HEADER 128 // bytes of an .npy file before its values
#define BATCH 32
#define WEIGHTS 65536 // more than the model has
#define WAIT_MS 60000

// What the files hold when the measurement begins, and how often a run of the engine writes to
// them. The evaluating process counts for itself.
static char labels_path[64];
static int changes_left;

// Writes class 0 over all labels, in place. Each change has a time of its own.
static void overwrite_labels(int64_t seconds)
{
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    static const uint8_t zeros[4096];
    struct stat status;
    int file = open(labels_path, O_WRONLY | O_CLOEXEC);

    assert_return_code(file, 0);
    assert_int_equal(fstat(file, &status), 0);
    for (off_t at = HEADER; at < status.st_size;) {
        size_t left = (size_t)(status.st_size - at);
        ssize_t size = pwrite(file, zeros, left < sizeof(zeros) ? left : sizeof(zeros), at);

        assert_true(size > 0);
        at += size;
    }
    assert_int_equal(futimens(file, times), 0);
    close(file);
}

static cn_err run_and_change(struct cn_compute *device, struct cn_compute_program *program,
                             const struct cn_hyper *hyper)
{
    if (changes_left > 0)
        overwrite_labels(1000000 - changes_left--);
    return cn_compute_cpu.run(device, program, hyper);
}

static struct cn_compute_ops changing;

static cn_err open_changing(const struct cn_compute_config *config, struct cn_compute **device)
{
    cn_err err = cn_compute_cpu.open(config, device);

    if (!err)
        (*device)->ops = &changing;
    return err;
}

struct evaluation {
    char directory[32];
    struct cn_mapping model;
    struct cn_onnx *onnx;
    struct cn_job job;
    struct cn_data_paths files;
    struct cn_evaluator *evaluator;
    struct cn_run_measure measure;
};

static void copy(const char *from, const char *to)
{
    struct cn_mapping content;
    FILE *file = fopen(to, "wb");

    assert_non_null(file);
    assert_int_equal(cn_platform_map(from, 1 << 24, &content), CN_OK);
    assert_int_equal(fwrite(content.data, 1, content.size, file), content.size);
    assert_int_equal(fclose(file), 0);
    cn_platform_unmap(&content);
}

static int set_up(void **state)
{
    static const struct cn_compute_ops *const computes[] = {&changing, NULL};
    struct evaluation *evaluation = calloc(1, sizeof(*evaluation));
    struct cn_evaluator_config config = {
        .job = &evaluation->job, .files = &evaluation->files, .computes = computes, .threads = 1};
    struct cn_diag diag;

    assert_non_null(evaluation);
    changing = cn_compute_cpu;
    changing.open = open_changing;
    changing.run = run_and_change;
    changes_left = 0;
    cn_diag_init(&diag);
    snprintf(evaluation->directory, sizeof(evaluation->directory), "/tmp/cairn-test-XXXXXX");
    assert_non_null(mkdtemp(evaluation->directory));
    snprintf(labels_path, sizeof(labels_path), "%s/labels.npy", evaluation->directory);
    copy(DIGITS "held-out-labels.npy", labels_path);
    evaluation->job =
        (struct cn_job){.batch = BATCH, .loss = CN_LOSS_CROSS_ENTROPY, .scale = 0.0625F};
    evaluation->files =
        (struct cn_data_paths){.name = "held-out", .inputs = DIGITS "held-out-images.npy"};
    snprintf(evaluation->files.labels, sizeof(evaluation->files.labels), "%s", labels_path);
    assert_int_equal(cn_platform_map(DIGITS "digits-mlp.onnx", 1 << 20, &evaluation->model), CN_OK);
    assert_int_equal(
        cn_onnx_open(evaluation->model.data, evaluation->model.size, &diag, &evaluation->onnx),
        CN_OK);
    config.onnx = evaluation->onnx;
    config.timeout_ms = WAIT_MS;
    if (cn_evaluator_open(&config, &diag, &evaluation->evaluator))
        fail_msg("%s", cn_diag_first(&diag));
    cn_evaluator_measure(evaluation->evaluator, &evaluation->measure);
    *state = evaluation;
    return 0;
}

// Writes this value over all elements of a copy of an .npy file of the tests.
static void copy_filled(const char *from, const char *to, float value)
{
    struct cn_mapping content;
    FILE *file = fopen(to, "wb");

    assert_non_null(file);
    assert_int_equal(cn_platform_map(from, 1 << 24, &content), CN_OK);
    assert_int_equal(fwrite(content.data, 1, HEADER, file), HEADER);
    for (size_t at = HEADER; at < content.size; at += sizeof(value))
        assert_int_equal(fwrite(&value, sizeof(value), 1, file), 1);
    assert_int_equal(fclose(file), 0);
    cn_platform_unmap(&content);
}

static int tear_down(void **state)
{
    struct evaluation *evaluation = *state;

    cn_evaluator_close(evaluation->evaluator);
    cn_onnx_close(evaluation->onnx);
    cn_platform_unmap(&evaluation->model);
    unlink(labels_path);
    rmdir(evaluation->directory);
    free(evaluation);
    return 0;
}

// Measures a version with all weights of this value. With zero, the model of digits gives class 0
// to each sample.
static cn_err measure(struct evaluation *evaluation, float weight, int changes,
                      struct cn_ledger_metrics *metrics)
{
    static float weights[WEIGHTS];
    uint32_t version = 0;
    cn_err err;

    changes_left = changes;
    for (size_t i = 0; i < WEIGHTS; i++)
        weights[i] = weight;
    assert_int_equal(
        evaluation->measure.start(evaluation->measure.context, 3, weights, cn_platform_now_ms()),
        CN_OK);
    while ((err = evaluation->measure.poll(evaluation->measure.context, cn_platform_now_ms(),
                                           &version, metrics)) == CN_EAGAIN)
        usleep(1000);
    assert_int_equal(version, 3);
    return err;
}

static void a_set_that_stays_is_measured_once(void **state)
{
    struct cn_ledger_metrics metrics;

    assert_int_equal(measure(*state, 0, 0, &metrics), CN_OK);
    assert_true(metrics.count > 2 * BATCH);
    assert_in_range(metrics.correct, 1, metrics.count / 2);
}

static void a_set_that_is_overwritten_is_measured_again(void **state)
{
    struct cn_ledger_metrics metrics;

    assert_int_equal(measure(*state, 0, 1, &metrics), CN_OK);
    assert_int_equal(metrics.correct, metrics.count); // all of it is the new content
}

static void a_set_that_changes_on_and_on_gives_no_measurement(void **state)
{
    struct cn_ledger_metrics metrics;

    assert_int_equal(measure(*state, 0, 100000, &metrics), CN_EPEER);
    assert_int_equal(measure(*state, 0, 0, &metrics), CN_OK); // of the next version it does
}

// The loss is the mean of (y - value)^2, less 2 % of the sum of |y|. With weights of 1 and inputs
// of 0, each y is 16 tanh(1) + 1.
static void a_loss_that_the_model_computes_may_be_negative(void **state)
{
    const float y = 16 * tanhf(1) + 1;
    struct evaluation *evaluation = *state;
    struct cn_data_paths *files = &evaluation->files;
    struct cn_evaluator_config config = {
        .job = &evaluation->job,
        .files = files,
        .computes = (const struct cn_compute_ops *[]){&cn_compute_cpu, NULL},
        .threads = 1,
        .timeout_ms = WAIT_MS};
    struct cn_ledger_metrics metrics;
    struct cn_onnx_file model;
    struct cn_diag diag;

    cn_diag_init(&diag);
    cn_evaluator_close(evaluation->evaluator);
    evaluation->evaluator = NULL;
    *files = (struct cn_data_paths){.name = "own", .file_count = 2};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "value" : "x";
        char from[256];

        snprintf(from, sizeof(from), CAIRN_TEST_DATA "/losses/mean-and-sum-%s.npy", name);
        snprintf(files->files[i].name, sizeof(files->files[i].name), "%s", name);
        snprintf(files->files[i].path, sizeof(files->files[i].path), "%s/%s.npy",
                 evaluation->directory, name);
        copy_filled(from, files->files[i].path, i ? y : 0);
    }
    evaluation->job = (struct cn_job){.batch = 8, .loss = CN_LOSS_OUTPUT, .scale = 1};
    snprintf(evaluation->job.rules.output, sizeof(evaluation->job.rules.output), "loss");
    assert_int_equal(
        cn_onnx_file_open(CAIRN_TEST_DATA "/losses/mean-and-sum-model.onnx", NULL, &model), CN_OK);
    cn_onnx_close(evaluation->onnx);
    assert_int_equal(cn_onnx_open(model.data, model.size, &diag, &evaluation->onnx), CN_OK);
    config.onnx = evaluation->onnx;
    if (cn_evaluator_open(&config, &diag, &evaluation->evaluator))
        fail_msg("%s", cn_diag_first(&diag));
    cn_evaluator_measure(evaluation->evaluator, &evaluation->measure);
    assert_int_equal(measure(evaluation, 1, 0, &metrics), CN_OK);
    assert_int_equal(metrics.count, 24);
    assert_true(metrics.loss < -1);
    cn_onnx_file_close(&model);
    for (int i = 0; i < 2; i++)
        unlink(files->files[i].path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_set_that_stays_is_measured_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_set_that_is_overwritten_is_measured_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_loss_that_the_model_computes_may_be_negative, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_set_that_changes_on_and_on_gives_no_measurement, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
