// The rounds of a training without network, as a file over restarts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/command/train_history.h"
#include "runtime/round/node/alone.h"
#include "tests/support/flaky_store.h"

#define TORCH CAIRN_TEST_DATA "/torch/batch-norm-1d-"

struct history_world {
    char directory[64], path[CN_PATH_SIZE + 64];
    struct cn_settings settings;
    struct cn_flaky_store flaky;
    struct cn_train_history history;
    uint32_t reported; // newest round that was reported
    atomic_bool stop;
};

static int set_up(void **state)
{
    struct history_world *world = calloc(1, sizeof(*world));
    struct cn_data_paths *data;

    assert_non_null(world);
    *state = world;
    snprintf(world->directory, sizeof(world->directory), "/tmp/cairn-history-XXXXXX");
    if (!mkdtemp(world->directory))
        return -1;
    snprintf(world->settings.state, CN_PATH_SIZE, "%s", world->directory);
    snprintf(world->path, sizeof(world->path), "%s/" CN_TRAIN_HISTORY_FILE, world->directory);
    world->settings.threads = 1;
    world->settings.data_count = 1;
    data = &world->settings.data[0];
    snprintf(data->name, sizeof(data->name), "samples");
    snprintf(data->inputs, CN_PATH_SIZE, TORCH "inputs.npy");
    snprintf(data->labels, CN_PATH_SIZE, TORCH "labels.npy");
    world->settings.job = (struct cn_job){.name = "job",
                                          .data_set = "samples",
                                          .scale = 1,
                                          .batch = 16,
                                          .accumulate = 1,
                                          .local_steps = 2,
                                          .rounds = 2,
                                          .learning_rate = 0.05};
    world->history.settings = &world->settings;
    cn_flaky_store_init(&world->flaky);
    return 0;
}

static int tear_down(void **state)
{
    struct history_world *world = *state;
    char command[128];

    cn_flaky_store_deinit(&world->flaky);
    snprintf(command, sizeof(command), "rm -rf %s", world->directory);
    free(world);
    return system(command); // NOLINT(cert-env33-c): a directory of this test
}

static void add(struct history_world *world, uint32_t round, double loss)
{
    const struct cn_alone_report report = {
        .round = round,
        .train_loss = loss,
        .scores =
            {.loss = NAN, .accuracy = NAN, .top5 = NAN, .f1 = NAN, .mae = NAN, .perplexity = NAN},
        .step_ms = 1,
    };

    cn_train_history_add(&world->history, &report);
}

// Appends text to the file.
static void put(const struct history_world *world, const char *text)
{
    FILE *file = fopen(world->path, "a");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// Returns the report as CSV without the names of its columns; of a long one the end. Counts its
// lines.
static char *read_report(const struct history_world *world, size_t *lines)
{
    static char text[1 << 16];
    char path[128];
    FILE *file;
    size_t size, from;

    snprintf(path, sizeof(path), "%s/report.csv", world->directory);
    assert_int_equal(cn_train_history_write(&world->history, path), CN_OK);
    file = fopen(path, "r");
    assert_non_null(file);
    *lines = 0;
    for (int byte; (byte = fgetc(file)) != EOF;)
        *lines += byte == '\n';
    from = (size_t)ftell(file) > sizeof(text) - 1 ? (size_t)ftell(file) - sizeof(text) + 1 : 0;
    assert_int_equal(fseek(file, (long)from, SEEK_SET), 0);
    size = fread(text, 1, sizeof(text) - 1, file);
    text[size] = '\0';
    fclose(file);
    return from ? text : strchr(text, '\n') + 1;
}

static void another_training_leaves_no_round_of_the_one_before(void **state)
{
    struct history_world *world = *state;
    size_t lines;

    add(world, 1, 5);
    add(world, 2, 4);
    add(world, 3, 3);
    cn_train_history_begin(&world->history);
    add(world, 2, 0.5); // the line of round 1 could not be written
    assert_string_equal(read_report(world, &lines), "2,0.5,,,,,,,1,\n");
    cn_train_history_begin(&world->history);
    cn_train_history_begin(&world->history); // nothing is there
    add(world, 1, 7);
    assert_string_equal(read_report(world, &lines), "1,7,,,,,,,1,\n");
}

static void a_line_that_was_cut_off_costs_no_other(void **state)
{
    struct history_world *world = *state;
    size_t lines;

    add(world, 1, 5);
    put(world, "2,0.25");
    add(world, 2, 4);
    add(world, 3, 3);
    add(world, 3, 2); // trained again
    assert_string_equal(read_report(world, &lines), "1,5,,,,,,,1,\n2,4,,,,,,,1,\n3,2,,,,,,,1,\n");
}

static void a_file_of_any_length_gives_a_report(void **state)
{
    struct history_world *world = *state;
    FILE *file = fopen(world->path, "w");
    size_t lines;

    assert_non_null(file);
    for (int round = 1; round <= 1000010; round++)
        fprintf(file, "%d,1,,,,,,,1,\n", round);
    fclose(file);
    assert_non_null(strstr(read_report(world, &lines), "\n1000000,1,"));
    assert_int_equal(lines, 1000001);
}

// --- with a training ---

// The disk takes nothing after a report, and the training ends.
static void take_report(void *context, const struct cn_alone_report *report)
{
    struct history_world *world = context;

    world->reported = report->round;
    atomic_store(&world->stop, true);
    cn_flaky_store_fail(&world->flaky, 1, true, CN_EIO);
}

static void train_until_report(struct history_world *world)
{
    static struct cn_diag diag;
    struct cn_onnx_file model;
    struct cn_alone_config config = {
        .settings = &world->settings,
        .compute = &cn_compute_cpu,
        .store = &world->flaky.store,
        .sysroot = "/nowhere",
        .model = &model,
        .stop = &world->stop,
        .report = take_report,
        .context = world,
    };

    atomic_store(&world->stop, false);
    cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_file_open(CAIRN_TEST_DATA "/models/batch-norm-1d.onnx", &diag, &model),
                     CN_OK);
    assert_int_not_equal(cn_alone_run(&config, &diag), CN_OK);
    cn_onnx_file_close(&model);
}

static void no_round_is_stored_before_it_was_reported(void **state)
{
    struct history_world *world = *state;

    for (int i = 0; i < 2; i++) {
        train_until_report(world);
        assert_int_equal(world->reported, 1); // again, as it was not stored
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(another_training_leaves_no_round_of_the_one_before, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_was_cut_off_costs_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_of_any_length_gives_a_report, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_round_is_stored_before_it_was_reported, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
