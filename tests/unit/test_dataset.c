#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/data/dataset.h"

#define COUNT 50

struct fixture {
    char directory[32];
    char inputs[64], labels[64];
    struct cn_dataset_config config;
    struct cn_sample_shape shape;
    struct cn_diag diag;
    struct cn_dataset *dataset;
};

static void write_array(const char *path, const char *descr, const char *shape, const void *data,
                        size_t size)
{
    char header[200];
    uint8_t prefix[10] = "\x93NUMPY\x01";
    FILE *file = fopen(path, "wb");
    int length =
        snprintf(header, sizeof(header),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape);

    assert_non_null(file);
    cn_put_u16(prefix + 8, (uint16_t)length);
    assert_int_equal(fwrite(prefix, 1, 10, file), 10);
    assert_int_equal(fwrite(header, 1, (size_t)length, file), length);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

// COUNT samples of two values (i, i + 0.5), label i % 5.
static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    float inputs[COUNT][2];
    int64_t labels[COUNT];

    if (!fixture)
        return 1;
    strcpy(fixture->directory, "/tmp/cairn-dataset-XXXXXX");
    if (!mkdtemp(fixture->directory))
        return 1;
    snprintf(fixture->inputs, sizeof(fixture->inputs), "%s/inputs.npy", fixture->directory);
    snprintf(fixture->labels, sizeof(fixture->labels), "%s/labels.npy", fixture->directory);
    for (int i = 0; i < COUNT; i++) {
        inputs[i][0] = (float)i;
        inputs[i][1] = (float)i + 0.5f;
        labels[i] = i % 5;
    }
    write_array(fixture->inputs, "<f4", "50, 2", inputs, sizeof(inputs));
    write_array(fixture->labels, "<i8", "50,", labels, sizeof(labels));
    fixture->config = (struct cn_dataset_config){
        .files = {.inputs = fixture->inputs, .labels = fixture->labels}, .scale = 1, .seed = 3};
    fixture->shape = (struct cn_sample_shape){
        .loss = CN_LOSS_CROSS_ENTROPY, .rank = 2, .dims = {1, 2}, .outputs = 5};
    cn_diag_init(&fixture->diag);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    cn_dataset_close(fixture->dataset);
    unlink(fixture->inputs);
    unlink(fixture->labels);
    rmdir(fixture->directory);
    free(fixture);
    return 0;
}

static cn_err open_set(struct fixture *fixture)
{
    cn_dataset_close(fixture->dataset);
    fixture->dataset = NULL;
    cn_diag_init(&fixture->diag);
    return cn_dataset_open(&fixture->config, &fixture->shape, &fixture->diag, &fixture->dataset);
}

static void assert_refused(struct fixture *fixture, const char *part)
{
    assert_int_not_equal(open_set(fixture), CN_OK);
    assert_null(fixture->dataset);
    for (size_t i = 0; i < fixture->diag.count; i++) {
        if (strstr(fixture->diag.lines[i], part))
            return;
    }
    fail_msg("'%s' lacks '%s'", cn_diag_first(&fixture->diag), part);
}

static void an_epoch_shows_every_training_sample_once_in_another_order(void **state)
{
    struct fixture *fixture = *state;
    float inputs[10][2];
    int32_t labels[10];
    struct cn_batch batch = {.inputs = inputs[0], .labels = labels};
    int seen[COUNT] = {0};
    int order[2][COUNT];

    assert_int_equal(open_set(fixture), CN_OK);
    assert_int_equal(cn_dataset_count(fixture->dataset, CN_SPLIT_TRAIN), COUNT);
    for (uint64_t index = 0; index < 10; index++) {
        cn_dataset_train_batch(fixture->dataset, index, 10, &batch);
        assert_int_equal(batch.count, 10);
        for (int i = 0; i < 10; i++) {
            int sample = (int)inputs[i][0];

            assert_true(inputs[i][1] == inputs[i][0] + 0.5f);
            assert_int_equal(labels[i], sample % 5);
            seen[sample]++;
            order[index / 5][index % 5 * 10 + (uint64_t)i] = sample;
        }
    }
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 2);
    assert_memory_not_equal(order[0], order[1], sizeof(order[0]));
}

static void held_out_samples_are_never_trained_on(void **state)
{
    struct fixture *fixture = *state;
    float inputs[COUNT][2];
    int32_t labels[COUNT];
    struct cn_batch batch = {.inputs = inputs[0], .labels = labels};
    bool held_out[COUNT] = {false};

    fixture->config.held_out = 0.2;
    assert_int_equal(open_set(fixture), CN_OK);
    assert_int_equal(cn_dataset_count(fixture->dataset, CN_SPLIT_HELD_OUT), 10);
    assert_int_equal(cn_dataset_count(fixture->dataset, CN_SPLIT_TRAIN), 40);
    cn_dataset_range(fixture->dataset, CN_SPLIT_HELD_OUT, 0, COUNT, &batch);
    assert_int_equal(batch.count, 10);
    for (uint32_t i = 0; i < batch.count; i++)
        held_out[(int)inputs[i][0]] = true;
    for (uint64_t index = 0; index < 20; index++) {
        cn_dataset_train_batch(fixture->dataset, index, 7, &batch);
        for (uint32_t i = 0; i < batch.count; i++)
            assert_false(held_out[(int)inputs[i][0]]);
    }
    cn_dataset_range(fixture->dataset, CN_SPLIT_HELD_OUT, 8, 7, &batch);
    assert_int_equal(batch.count, 2);
    cn_dataset_range(fixture->dataset, CN_SPLIT_HELD_OUT, 10, 7, &batch);
    assert_int_equal(batch.count, 0);
    cn_dataset_range(fixture->dataset, CN_SPLIT_ALL, 40, 20, &batch);
    assert_int_equal(batch.count, 10);
    assert_true(inputs[0][0] == 40);
}

static void a_batch_number_gives_the_same_samples_in_every_run(void **state)
{
    struct fixture *fixture = *state;
    float first[8][2], again[8][2];
    int32_t labels[8];
    struct cn_batch batch = {.inputs = first[0], .labels = labels};

    fixture->config.held_out = 0.1;
    assert_int_equal(open_set(fixture), CN_OK);
    cn_dataset_train_batch(fixture->dataset, 123, 8, &batch);
    assert_int_equal(open_set(fixture), CN_OK);
    batch.inputs = again[0];
    cn_dataset_train_batch(fixture->dataset, 123, 8, &batch);
    assert_memory_equal(first, again, sizeof(first));
    fixture->config.seed++;
    assert_int_equal(open_set(fixture), CN_OK);
    cn_dataset_train_batch(fixture->dataset, 123, 8, &batch);
    assert_memory_not_equal(first, again, sizeof(first));
}

static void bytes_are_scaled_and_labels_of_any_width_are_read(void **state)
{
    struct fixture *fixture = *state;
    uint8_t inputs[3][2] = {{0, 16}, {8, 4}, {255, 1}};
    uint16_t labels[3] = {4, 0, 2};
    float values[3][2];
    int32_t classes[3];
    struct cn_batch batch = {.inputs = values[0], .labels = classes};

    write_array(fixture->inputs, "|u1", "3, 2", inputs, sizeof(inputs));
    write_array(fixture->labels, "<u2", "3, 1", labels, sizeof(labels));
    fixture->config.scale = 0.5;
    fixture->config.mean = 8;
    assert_int_equal(open_set(fixture), CN_OK);
    cn_dataset_range(fixture->dataset, CN_SPLIT_ALL, 0, 3, &batch);
    assert_int_equal(batch.count, 3);
    assert_true(values[0][0] == -4 && values[0][1] == 4 && values[2][0] == 123.5f);
    assert_int_equal(classes[0], 4);
    assert_int_equal(classes[2], 2);
}

static void targets_of_mean_squared_error_are_floats(void **state)
{
    struct fixture *fixture = *state;
    float targets[COUNT][3] = {{1, 2, 3}, {4, 5, 6}};
    float inputs[2][2], outputs[2][3];
    struct cn_batch batch = {.inputs = inputs[0], .targets = outputs[0]};

    fixture->shape.loss = CN_LOSS_MSE;
    assert_refused(fixture, "labels.npy: the targets are int64; mean squared error wants float32");
    write_array(fixture->labels, "<f4", "50, 3", targets, sizeof(targets));
    assert_refused(fixture, "labels.npy: a target has 3 values; an output of the model has 5");
    fixture->shape.outputs = 3;
    assert_int_equal(open_set(fixture), CN_OK);
    cn_dataset_range(fixture->dataset, CN_SPLIT_ALL, 0, 2, &batch);
    assert_memory_equal(outputs, targets, sizeof(outputs));
    targets[7][1] = NAN;
    write_array(fixture->labels, "<f4", "50, 3", targets, sizeof(targets));
    assert_refused(fixture, "labels.npy: sample 7 has NaN at its value 1");
}

static void arrays_that_do_not_fit_the_model_are_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    float inputs[COUNT][2] = {{0}};
    int32_t labels[COUNT] = {0};

    fixture->shape.dims[1] = 3;
    assert_refused(fixture, "inputs.npy: a sample has the shape (2); the model wants (1, 3)");
    fixture->shape.dims[1] = 2;
    labels[33] = 5;
    write_array(fixture->labels, "<i4", "50,", labels, sizeof(labels));
    assert_refused(fixture,
                   "labels.npy: sample 33 has the label 5; the model's classes are 0 to 4");
    fixture->shape.outputs = 1;
    assert_refused(fixture, "classes are 0 to 0; for yes-or-no answers use float32 labels and "
                            "`loss: binary_cross_entropy`");
    fixture->shape.outputs = 5;
    labels[33] = -1;
    write_array(fixture->labels, "<i4", "50,", labels, sizeof(labels));
    assert_refused(fixture, "sample 33 has the label -1");
    write_array(fixture->labels, "<i4", "49,", labels, sizeof(labels) - 4);
    assert_refused(fixture, "labels.npy has 49 labels, but ");
    write_array(fixture->labels, "<i4", "25, 2", labels, sizeof(labels));
    assert_refused(fixture, "25 labels");
    write_array(fixture->labels, "<f4", "50,", labels, sizeof(labels));
    assert_refused(fixture, "the labels are float32; cross-entropy wants class numbers");
    inputs[2][1] = INFINITY;
    write_array(fixture->inputs, "<f4", "50, 2", inputs, sizeof(inputs));
    assert_refused(fixture, "inputs.npy: sample 2 has infinity at its value 1");
    write_array(fixture->inputs, "<i4", "50, 2", inputs, sizeof(inputs));
    assert_refused(fixture, "inputs.npy: the inputs are int32; wanted float32 or uint8");
    write_array(fixture->inputs, "<f4", "0, 2", inputs, 0);
    assert_refused(fixture, "inputs.npy: no samples");
    write_array(fixture->inputs, "<f4", "50, 2", inputs, 10);
    assert_refused(fixture, "inputs.npy: 10 bytes of data");
    unlink(fixture->inputs);
    assert_refused(fixture, "inputs.npy: cannot be read");
}

// Rows whose first values are i in train (+1) and held_out (+2).
static void mark_rows(const struct fixture *fixture, size_t window, int rows[COUNT])
{
    float inputs[COUNT * 20];
    int32_t labels[COUNT];
    struct cn_batch batch = {.inputs = inputs, .labels = labels};
    uint64_t held_out = cn_dataset_count(fixture->dataset, CN_SPLIT_HELD_OUT);
    uint64_t trained = cn_dataset_count(fixture->dataset, CN_SPLIT_TRAIN);

    memset(rows, 0, COUNT * sizeof(rows[0]));
    for (uint64_t n = 0; n < held_out; n++) {
        cn_dataset_range(fixture->dataset, CN_SPLIT_HELD_OUT, n, 1, &batch);
        for (size_t i = 0; i < window; i++)
            rows[(int)inputs[2 * i]] |= 2;
    }
    for (uint64_t n = 0; n < trained; n++) {
        cn_dataset_train_batch(fixture->dataset, n, 1, &batch);
        for (size_t i = 0; i < window; i++)
            rows[(int)inputs[2 * i]] |= 1;
    }
}

static void held_out_windows_share_no_row_with_those_trained_on(void **state)
{
    struct fixture *fixture = *state;
    int rows[COUNT];

    fixture->config.held_out = 0.2;
    fixture->shape.rank = 2;
    for (uint32_t stride = 1; stride <= 12; stride++) {
        struct cn_rules rules = {.window = 10, .stride = stride};

        fixture->config.rules = &rules;
        memcpy(fixture->shape.dims, (uint64_t[]){10, 2}, 2 * sizeof(uint64_t));
        assert_int_equal(open_set(fixture), CN_OK);
        assert_true(cn_dataset_count(fixture->dataset, CN_SPLIT_HELD_OUT) > 0);
        mark_rows(fixture, 10, rows);
        assert_int_equal(rows[0], 1); // the end is held out
        for (int i = 0; i < COUNT; i++)
            assert_int_not_equal(rows[i], 3);
        // The last window that is trained on may not be earlier than it must.
        for (int i = 1; stride == 1 && i < COUNT; i++)
            assert_int_not_equal(rows[i], 0);
    }
}

static void a_series_too_short_for_two_sides_is_trained_on(void **state)
{
    struct fixture *fixture = *state;
    static const struct cn_rules rules = {.window = 26, .stride = 1};

    fixture->config.rules = &rules;
    fixture->config.held_out = 0.9;
    fixture->shape.rank = 1;
    fixture->shape.dims[0] = 52;
    assert_int_equal(open_set(fixture), CN_OK); // 25 windows, which share rows
    assert_int_equal(cn_dataset_count(fixture->dataset, CN_SPLIT_HELD_OUT), 0);
    assert_int_equal(cn_dataset_count(fixture->dataset, CN_SPLIT_TRAIN), 25);
}

static void samples_in_another_order_of_dimensions_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const float inputs[COUNT * 24];
    static const char *const fitting[] = {"50, 24", "50, 2, 3, 4", "50, 6, 4", "50, 1, 2, 3, 4, 1"};

    fixture->shape.rank = 3;
    memcpy(fixture->shape.dims, (uint64_t[]){2, 3, 4}, 3 * sizeof(uint64_t));
    for (size_t i = 0; i < sizeof(fitting) / sizeof(fitting[0]); i++) {
        write_array(fixture->inputs, "<f4", fitting[i], inputs, sizeof(inputs));
        assert_int_equal(open_set(fixture), CN_OK);
    }
    write_array(fixture->inputs, "<f4", "50, 3, 4, 2", inputs, sizeof(inputs));
    assert_refused(fixture, "inputs.npy: a sample has the shape (3, 4, 2); the model wants (2, 3, "
                            "4): transpose the array, with numpy.transpose(array, (0, 3, 1, 2))");
    write_array(fixture->inputs, "<f4", "50, 4, 6", inputs, sizeof(inputs));
    assert_refused(fixture, "(4, 6); the model wants (2, 3, 4): save the array in this shape");
    fixture->shape.rank = 1;
    fixture->shape.dims[0] = 24;
    assert_int_equal(open_set(fixture), CN_OK);
}

static void the_rows_of_a_window_are_its_first_dimension(void **state)
{
    struct fixture *fixture = *state;
    static const struct cn_rules rules = {.window = 6, .stride = 1};

    fixture->config.rules = &rules;
    fixture->shape.rank = 2;
    memcpy(fixture->shape.dims, (uint64_t[]){6, 2}, 2 * sizeof(uint64_t));
    assert_int_equal(open_set(fixture), CN_OK);
    memcpy(fixture->shape.dims, (uint64_t[]){2, 6}, 2 * sizeof(uint64_t));
    assert_refused(fixture,
                   "a window has the shape (6, 2), its rows first; the model wants (2, 6)");
}

static void a_file_goes_to_the_input_of_its_name_only(void **state)
{
    struct fixture *fixture = *state;
    struct cn_dataset_files *files = &fixture->config.files;
    const char *path = fixture->inputs;

    fixture->shape.input_count = 2;
    fixture->shape.inputs[0] = (struct cn_input_shape){.name = "sensor", .rank = 1, .dims = {2}};
    fixture->shape.inputs[1] = (struct cn_input_shape){.name = "meta", .rank = 1, .dims = {2}};
    files->other_count = 2;
    files->others[0] = (struct cn_dataset_file){"sensr", path};
    files->others[1] = (struct cn_dataset_file){"meta", path};
    assert_refused(fixture, "no file for the input 'sensor' of the model; wanted inputs: {sensor: "
                            "FILE}; there are 'sensr', 'meta'");
    files->others[0].name = "sensor";
    assert_int_equal(open_set(fixture), CN_OK);
    fixture->shape.inputs[0].dims[0] = 3;
    assert_refused(fixture, "(2); the model wants (3)");
    assert_int_equal(fixture->diag.count, 1); // that it has no samples is not the mistake
}

static void labels_that_are_an_input_are_checked_as_well(void **state)
{
    struct fixture *fixture = *state;
    struct cn_input_shape *input = &fixture->shape.inputs[0];

    fixture->shape.loss = CN_LOSS_OUTPUT;
    fixture->shape.input_count = 1;
    *input = (struct cn_input_shape){
        .name = "label", .integers = true, .rank = 1, .dims = {1}, .classes = 5};
    fixture->config.files.inputs = fixture->labels;
    assert_int_equal(open_set(fixture), CN_OK);
    input->classes = 4;
    input->ignored = INT64_MIN;
    assert_refused(fixture, "labels.npy: sample 4 has the label 4; the model's classes are 0 to 3");
    input->ignored = 4;
    assert_int_equal(open_set(fixture), CN_OK);
}

static void numbers_without_a_row_in_the_table_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct cn_input_shape *input = &fixture->shape.inputs[0];

    fixture->shape.loss = CN_LOSS_OUTPUT;
    fixture->shape.input_count = 1;
    *input = (struct cn_input_shape){
        .name = "token", .integers = true, .rank = 1, .dims = {1}, .table_rows = 5};
    fixture->config.files.inputs = fixture->labels;
    assert_int_equal(open_set(fixture), CN_OK);
    input->table_rows = 4;
    assert_refused(fixture,
                   "labels.npy: sample 4 has the value 4; the model's table has a row for 0 to 3");
}

static void mistakes_in_both_files_are_told_at_once(void **state)
{
    struct fixture *fixture = *state;

    fixture->shape.dims[1] = 3;
    fixture->shape.outputs = 4;
    assert_int_equal(open_set(fixture), CN_EFORMAT);
    assert_int_equal(fixture->diag.count, 2);
}

static void settings_outside_their_limits_are_refused(void **state)
{
    struct fixture *fixture = *state;

    fixture->config.scale = 0;
    assert_refused(fixture, "scale is 0");
    fixture->config.scale = 1;
    fixture->config.held_out = 0.91;
    assert_refused(fixture, "held_out is 0.91");
    fixture->config.held_out = NAN;
    assert_refused(fixture, "held_out is");
    fixture->config.held_out = 0;
    fixture->config.rules = &(struct cn_rules){.crop = 2};
    assert_refused(fixture, "data.crop is 2, and an image has 1x2; wanted less");
    fixture->shape.rank = 1;
    fixture->shape.dims[0] = 2;
    assert_refused(fixture, "data.crop is for images, and the model's samples are flat");
}

static void the_digits_of_a_board_fit_their_model(void **state)
{
    struct fixture *fixture = *state;
    float inputs[64];
    int32_t labels[1];
    struct cn_batch batch = {.inputs = inputs, .labels = labels};

    fixture->config.files.inputs = CAIRN_TEST_DATA "/digits/board-1-images.npy";
    fixture->config.files.labels = CAIRN_TEST_DATA "/digits/board-1-labels.npy";
    fixture->config.scale = 1.0 / 16;
    fixture->config.held_out = 0.1;
    fixture->shape = (struct cn_sample_shape){.rank = 3, .dims = {1, 8, 8}, .outputs = 10};
    assert_int_equal(open_set(fixture), CN_OK);
    assert_int_equal(cn_dataset_count(fixture->dataset, CN_SPLIT_ALL), 373);
    cn_dataset_train_batch(fixture->dataset, 1000, 1, &batch);
    for (int i = 0; i < 64; i++)
        assert_true(inputs[i] >= 0 && inputs[i] <= 1);
}

#define MANY 20000 // more than a sample of them would show

static uint32_t sum_of(struct fixture *fixture)
{
    assert_int_equal(open_set(fixture), CN_OK);
    return cn_dataset_sum(fixture->dataset);
}

static void each_value_of_a_file_is_in_the_sum(void **state)
{
    static const size_t places[] = {0, 1, 4095, 4096, 10001, MANY - 1};
    struct fixture *fixture = *state;
    float *inputs = calloc(2 * MANY, sizeof(*inputs));
    int64_t *labels = calloc(MANY, sizeof(*labels));
    uint32_t sum;
    assert_non_null(inputs);
    assert_non_null(labels);
    write_array(fixture->inputs, "<f4", "20000, 2", inputs, 2 * MANY * sizeof(*inputs));
    write_array(fixture->labels, "<i8", "20000,", labels, MANY * sizeof(*labels));
    sum = sum_of(fixture);
    assert_int_equal(sum_of(fixture), sum);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        labels[places[i]] = 1;
        write_array(fixture->labels, "<i8", "20000,", labels, MANY * sizeof(*labels));
        assert_int_not_equal(sum_of(fixture), sum);
        labels[places[i]] = 0;
        write_array(fixture->labels, "<i8", "20000,", labels, MANY * sizeof(*labels));
        inputs[places[i]] = 1;
        write_array(fixture->inputs, "<f4", "20000, 2", inputs, 2 * MANY * sizeof(*inputs));
        assert_int_not_equal(sum_of(fixture), sum);
        inputs[places[i]] = 0;
        write_array(fixture->inputs, "<f4", "20000, 2", inputs, 2 * MANY * sizeof(*inputs));
    }
    assert_int_equal(sum_of(fixture), sum);
    free(inputs);
    free(labels);
}

static void the_same_values_in_another_format_have_the_same_sum(void **state)
{
    struct fixture *fixture = *state;
    float inputs[COUNT][2];
    uint8_t bytes[COUNT][2], narrow[COUNT];
    int64_t labels[COUNT];
    uint32_t sum;
    for (int i = 0; i < COUNT; i++) {
        inputs[i][0] = bytes[i][0] = (uint8_t)(2 * i);
        inputs[i][1] = bytes[i][1] = (uint8_t)(2 * i + 1);
        labels[i] = narrow[i] = (uint8_t)(i % 5);
    }
    write_array(fixture->inputs, "<f4", "50, 2", inputs, sizeof(inputs));
    write_array(fixture->labels, "<i8", "50,", labels, sizeof(labels));
    sum = sum_of(fixture);
    write_array(fixture->inputs, "|u1", "50, 2", bytes, sizeof(bytes));
    assert_int_equal(sum_of(fixture), sum);
    write_array(fixture->labels, "|u1", "50,", narrow, sizeof(narrow));
    assert_int_equal(sum_of(fixture), sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_epoch_shows_every_training_sample_once_in_another_order,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_value_of_a_file_is_in_the_sum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_values_in_another_format_have_the_same_sum, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(held_out_samples_are_never_trained_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_batch_number_gives_the_same_samples_in_every_run, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(bytes_are_scaled_and_labels_of_any_width_are_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(targets_of_mean_squared_error_are_floats, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(arrays_that_do_not_fit_the_model_are_refused_by_name,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(held_out_windows_share_no_row_with_those_trained_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_series_too_short_for_two_sides_is_trained_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(samples_in_another_order_of_dimensions_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_rows_of_a_window_are_its_first_dimension, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(numbers_without_a_row_in_the_table_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(labels_that_are_an_input_are_checked_as_well, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_file_goes_to_the_input_of_its_name_only, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(mistakes_in_both_files_are_told_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(settings_outside_their_limits_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_digits_of_a_board_fit_their_model, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
