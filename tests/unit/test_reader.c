// Batches that are read ahead are those of the data set, in whatever order they are taken.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/data/reader.h"

#define SIZE 16
#define WORDS 64

struct fixture {
    struct cn_rules rules;
    struct cn_dataset *dataset;
    struct cn_reader *reader;
    struct cn_batch wanted;
};

static struct fixture fixture;

static int set_up(void **state)
{
    const struct cn_dataset_config config = {
        .files = {.inputs = CAIRN_TEST_DATA "/digits/board-1-images.npy",
                  .labels = CAIRN_TEST_DATA "/digits/board-1-labels.npy"},
        .rules = &fixture.rules,
        .scale = 1,
        .seed = 5,
    };
    const struct cn_sample_shape shape = {.rank = 3, .dims = {1, 8, 8}, .outputs = 10, .rows = 1};

    fixture.rules = (struct cn_rules){.crop = 1, .noise = 0.1};
    *state = &fixture;
    return cn_dataset_open(&config, &shape, NULL, &fixture.dataset) ||
           cn_reader_open(fixture.dataset, &shape, SIZE, &fixture.reader) ||
           cn_batch_init(&shape, SIZE, &fixture.wanted);
}

static int tear_down(void **state)
{
    (void)state;
    cn_reader_close(fixture.reader);
    cn_dataset_close(fixture.dataset);
    cn_batch_deinit(&fixture.wanted);
    return 0;
}

static void assert_batch(uint64_t index)
{
    const struct cn_batch *found = cn_reader_take(fixture.reader, index);

    cn_dataset_train_batch(fixture.dataset, index, SIZE, &fixture.wanted);
    assert_int_equal(found->count, SIZE);
    assert_memory_equal(found->inputs, fixture.wanted.inputs, SIZE * WORDS * sizeof(float));
    assert_memory_equal(found->labels, fixture.wanted.labels, SIZE * sizeof(int32_t));
}

static void batches_that_are_read_ahead_are_those_of_the_set(void **state)
{
    (void)state;
    for (uint64_t index = 3; index < 200; index++)
        assert_batch(index);
}

static void any_batch_may_be_taken_next(void **state)
{
    static const uint64_t order[] = {7, 7, 8, 2, 3, 3, 4, 0, 1, 100};

    (void)state;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        assert_batch(order[i]);
        if (i % 3 == 2)
            cn_reader_stop(fixture.reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_that_are_read_ahead_are_those_of_the_set, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(any_batch_may_be_taken_next, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
