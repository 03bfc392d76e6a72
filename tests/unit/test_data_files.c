// Data sets whose files come and go: the files that a * in a path stands for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "runtime/engine/data/dataset.h"

#define SAMPLES 20

struct fixture {
    char directory[40];
    char inputs[64], labels[64], held_out[64];
    struct cn_dataset_config config;
    struct cn_sample_shape shape;
    struct cn_diag diag;
    struct cn_dataset *dataset;
};

static void path_of(const struct fixture *f, const char *file, char path[128])
{
    snprintf(path, 128, "%s/%s", f->directory, file);
}

// SAMPLES rows "first + i, label" with the label i % 2.
static void put_table(const struct fixture *f, const char *file, int first, const char *last)
{
    char path[128];
    FILE *table;

    path_of(f, file, path);
    table = fopen(path, "w");
    assert_non_null(table);
    for (int i = 0; i < SAMPLES; i++)
        fprintf(table, "%d,%d\n", first + i, i % 2);
    fputs(last, table);
    assert_int_equal(fclose(table), 0);
}

static void take_away(const struct fixture *f, const char *file)
{
    char path[128];

    path_of(f, file, path);
    unlink(path);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    if (!f)
        return 1;
    strcpy(f->directory, "/tmp/cairn-shards-XXXXXX");
    if (!mkdtemp(f->directory))
        return 1;
    snprintf(f->inputs, sizeof(f->inputs), "%s/a*.csv:1", f->directory);
    snprintf(f->labels, sizeof(f->labels), "%s/a*.csv:2", f->directory);
    snprintf(f->held_out, sizeof(f->held_out), "%s/test.csv:1", f->directory);
    f->config = (struct cn_dataset_config){
        .files = {.inputs = f->inputs, .labels = f->labels}, .scale = 1, .seed = 3};
    f->shape = (struct cn_sample_shape){.rank = 1, .dims = {1}, .outputs = 2};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const files[] = {"a1.csv",  "a2.csv",      "a3.csv",  "a.csv",
                                        ".a4.csv", "a5.csv.part", "test.csv"};
    struct fixture *f = *state;

    cn_dataset_close(f->dataset);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        take_away(f, files[i]);
    rmdir(f->directory);
    free(f);
    return 0;
}

static cn_err open_set(struct fixture *f)
{
    cn_dataset_close(f->dataset);
    f->dataset = NULL;
    cn_diag_init(&f->diag);
    return cn_dataset_open(&f->config, &f->shape, &f->diag, &f->dataset);
}

static bool refresh(struct fixture *f)
{
    bool changed;

    assert_int_equal(cn_dataset_refresh(f->dataset, &changed), CN_OK);
    return changed;
}

// Sets seen[value] for each sample of a split.
static void mark(const struct fixture *f, enum cn_split split, int *seen)
{
    uint64_t count = cn_dataset_count(f->dataset, split);
    int32_t label;
    float value;
    struct cn_batch batch = {.inputs = &value, .labels = &label};

    for (uint64_t i = 0; i < count; i++) {
        cn_dataset_range(f->dataset, split, i, 1, &batch);
        assert_int_equal(batch.count, 1);
        assert_int_equal((int)value % 2, label);
        seen[(int)value]++;
    }
}

static void shards_come_and_go_with_a_refresh(void **state)
{
    struct fixture *f = *state;
    int seen[100] = {0};

    put_table(f, "a1.csv", 0, "");
    put_table(f, "a3.csv", 40, "");
    assert_int_equal(open_set(f), CN_OK);
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_TRAIN), 2 * SAMPLES);
    assert_false(refresh(f));
    put_table(f, "a2.csv", 20, "");
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_TRAIN), 2 * SAMPLES);
    assert_true(refresh(f));
    mark(f, CN_SPLIT_TRAIN, seen);
    for (int i = 0; i < 60; i++)
        assert_int_equal(seen[i], 1);
    take_away(f, "a1.csv");
    assert_true(refresh(f));
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_ALL), 2 * SAMPLES);
    take_away(f, "a2.csv");
    take_away(f, "a3.csv");
    assert_false(refresh(f)); // nothing would be left
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_ALL), 2 * SAMPLES);
}

static void files_that_are_still_written_are_no_shards(void **state)
{
    struct fixture *f = *state;

    put_table(f, "a1.csv", 0, "");
    put_table(f, ".a4.csv", 0, "");
    put_table(f, "a5.csv.part", 0, "");
    put_table(f, "a.csv", 0, "");
    assert_int_equal(open_set(f), CN_OK);
    assert_int_equal(cn_dataset_shards(f->dataset)->count, 1);
}

static void a_shard_waits_until_all_its_files_are_there(void **state)
{
    struct fixture *f = *state;

    snprintf(f->labels, sizeof(f->labels), "%s/*.csv:2", f->directory);
    put_table(f, "a1.csv", 0, ""); // its inputs are "1", its labels would be 1.csv
    assert_int_equal(open_set(f), CN_EFORMAT);
    assert_non_null(strstr(f->diag.lines[0], "no samples to train on"));
}

static void a_damaged_shard_is_left_out_while_it_is_there(void **state)
{
    struct fixture *f = *state;
    int seen[100] = {0};

    put_table(f, "a1.csv", 0, "");
    put_table(f, "a2.csv", 20, "7");
    assert_int_equal(open_set(f), CN_OK);
    assert_true(cn_data_files_get(cn_dataset_shards(f->dataset), "2", false)->refused);
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_ALL), SAMPLES);
    put_table(f, "a2.csv", 20, "");
    assert_false(refresh(f));
    take_away(f, "a2.csv");
    assert_true(refresh(f));
    put_table(f, "a2.csv", 20, "");
    assert_true(refresh(f));
    mark(f, CN_SPLIT_ALL, seen);
    assert_int_equal(seen[39], 1);
}

static void a_sample_stays_on_its_side_when_shards_come(void **state)
{
    struct fixture *f = *state;
    int before[100] = {0}, after[100] = {0};

    f->config.held_out = 0.25;
    put_table(f, "a2.csv", 20, "");
    assert_int_equal(open_set(f), CN_OK);
    mark(f, CN_SPLIT_HELD_OUT, before);
    put_table(f, "a1.csv", 0, "");
    put_table(f, "a3.csv", 40, "");
    assert_true(refresh(f));
    mark(f, CN_SPLIT_HELD_OUT, after);
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_HELD_OUT), 15);
    for (int i = 20; i < 40; i++)
        assert_int_equal(before[i], after[i]);
}

static void whole_files_can_be_held_out(void **state)
{
    struct fixture *f = *state;
    char labels[64];
    int held_out[100] = {0}, trained[100] = {0};

    snprintf(labels, sizeof(labels), "%s/test.csv:2", f->directory);
    f->config.apart = (struct cn_dataset_files){.inputs = f->held_out, .labels = labels};
    put_table(f, "a1.csv", 0, "");
    put_table(f, "test.csv", 50, "");
    assert_int_equal(open_set(f), CN_OK);
    mark(f, CN_SPLIT_HELD_OUT, held_out);
    mark(f, CN_SPLIT_TRAIN, trained);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(trained[i], i < SAMPLES);
        assert_int_equal(held_out[i], i >= 50 && i < 50 + SAMPLES);
    }
    take_away(f, "test.csv");
    assert_int_equal(open_set(f), CN_ENOTFOUND);
}

static void a_list_opens_what_was_there_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct cn_data_files list = {0};
    int seen[100] = {0};

    put_table(f, "a1.csv", 0, "");
    put_table(f, "a2.csv", 20, "");
    assert_int_equal(open_set(f), CN_OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(cn_data_files_add(&list, &cn_dataset_shards(f->dataset)->items[i]), CN_OK);
    put_table(f, "a3.csv", 40, "");
    f->config.shards = &list;
    assert_int_equal(open_set(f), CN_OK);
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_ALL), 2 * SAMPLES);
    put_table(f, "a2.csv", 60, ""); // another one under the same name
    assert_int_equal(open_set(f), CN_OK);
    mark(f, CN_SPLIT_ALL, seen);
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_ALL), SAMPLES);
    assert_int_equal(seen[0], 1);
    assert_true(refresh(f));
    assert_int_equal(cn_dataset_count(f->dataset, CN_SPLIT_ALL), 3 * SAMPLES);
    cn_data_files_deinit(&list);
}

static void a_star_is_in_each_path_and_in_the_last_part(void **state)
{
    struct fixture *f = *state;

    put_table(f, "a1.csv", 0, "");
    snprintf(f->labels, sizeof(f->labels), "%s/a1.csv:2", f->directory);
    assert_int_equal(open_set(f), CN_EINVAL);
    assert_non_null(strstr(f->diag.lines[0], "each of its paths needs one"));
    snprintf(f->inputs, sizeof(f->inputs), "%s*/a1.csv:1", f->directory);
    snprintf(f->labels, sizeof(f->labels), "%s*/a1.csv:2", f->directory);
    assert_int_equal(open_set(f), CN_EINVAL);
    assert_non_null(strstr(f->diag.lines[0], "one * in the last part"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards_come_and_go_with_a_refresh, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_that_are_still_written_are_no_shards, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_shard_waits_until_all_its_files_are_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_shard_is_left_out_while_it_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_sample_stays_on_its_side_when_shards_come, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(whole_files_can_be_held_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_opens_what_was_there_and_nothing_else, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_star_is_in_each_path_and_in_the_last_part, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
