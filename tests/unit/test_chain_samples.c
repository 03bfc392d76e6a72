// Which members of a group have the samples that a chain trains, and what of them travels.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/round/session/session_chain.h"

static void one_member_with_other_samples_does_not_stop_the_others(void **state)
{
    (void)state;
    assert_int_equal(cn_session_most_frequent((const int64_t[]){9, 5, 5, 5}, 4), 1);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){5, 5, 9, 5}, 4), 0);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){7, 9, 5, 5, 9, 5}, 6), 2);
}

static void of_samples_that_as_many_have_the_lowest_rank_decides(void **state)
{
    (void)state;
    assert_int_equal(cn_session_most_frequent((const int64_t[]){9, 5}, 2), 0);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){7, 5, 9, 9, 5}, 5), 1);
    assert_int_equal(cn_session_most_frequent((const int64_t[]){3}, 1), 0);
}

// Three parts and two inputs of 2 words and 1 word, of which the last part reads the second, too.
static void a_message_has_the_labels_and_the_inputs_of_later_parts(void **state)
{
    static const struct cn_job job = {.loss = CN_LOSS_CROSS_ENTROPY};
    struct cn_session session = {.config.job = &job,
                                 .cut = {.at.parts = 3,
                                         .input_count = 2,
                                         .input_words = {2, 1},
                                         .readers = {1, 1 | 4},
                                         .label_words = 1}};
    float inputs[] = {1, 2, 3, 4, 5, 6}, came[] = {9, 9, 9, 9, 9, 9}, message[4];
    int32_t labels[] = {7, 8}, labels_came[2];
    const struct cn_batch batch = {.inputs = inputs, .labels = labels, .count = 2};
    struct cn_batch arrived = {.inputs = came, .labels = labels_came};

    (void)state;
    for (uint32_t part = 0; part < 2; part++) {
        assert_int_equal(cn_session_sample_words(&session, part), 2);
        memset(message, 0, sizeof(message));
        cn_session_put_samples(&session, part, part ? &arrived : &batch, message);
        assert_memory_equal(message, ((const float[]){3, 6}), 2 * sizeof(float));
        cn_session_get_samples(&session, part, message, 2, &arrived);
        assert_int_equal(arrived.count, 2);
        assert_memory_equal(labels_came, labels, sizeof(labels));
        assert_memory_equal(came, ((const float[]){0, 0, 3, 0, 0, 6}), sizeof(came));
    }
    assert_int_equal(cn_session_sample_words(&session, 2), 0);
    session.cut.readers[1] = 1 | 2; // the second part reads it, and the third does not
    assert_int_equal(cn_session_sample_words(&session, 0), 2);
    assert_int_equal(cn_session_sample_words(&session, 1), 1);
}

static void targets_travel_as_labels_do(void **state)
{
    static const struct cn_job job = {.loss = CN_LOSS_MSE};
    struct cn_session session = {.config.job = &job, .cut = {.at.parts = 2, .label_words = 2}};
    float targets[] = {1, 2, 3, 4}, came[4], message[4];
    const struct cn_batch batch = {.targets = targets, .count = 2};
    struct cn_batch arrived = {.targets = came};

    (void)state;
    cn_session_put_samples(&session, 0, &batch, message);
    cn_session_get_samples(&session, 0, message, 2, &arrived);
    assert_memory_equal(came, targets, sizeof(targets));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_member_with_other_samples_does_not_stop_the_others),
        cmocka_unit_test(of_samples_that_as_many_have_the_lowest_rank_decides),
        cmocka_unit_test(a_message_has_the_labels_and_the_inputs_of_later_parts),
        cmocka_unit_test(targets_travel_as_labels_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
