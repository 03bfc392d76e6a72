// Error feedback: what is not sent now is sent later, and nothing is lost or counted twice.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/update/residual.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {
    {6000, CN_TENSOR_PARAM}, {10, CN_TENSOR_PARAM}, {10, CN_TENSOR_STAT}};
#define TOTAL 6020

static const struct cn_update_header header = {
    .round = 1,
    .weight = 1,
    .rule = {.mode = CN_UPDATE_TOPK, .density = 0.05, .value_bits = 2},
};

struct fixture {
    struct cn_layout layout;
    struct cn_buffer frame;
    float change[TOTAL], residual[TOTAL], next[TOTAL], received[TOTAL];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->layout = cn_test_layout(tensors, 3);
    cn_buffer_init(&f->frame, 1 << 20);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_buffer_deinit(&f->frame);
    cn_test_layout_free(&f->layout);
    free(f);
    return 0;
}

static cn_err send_change(struct fixture *f)
{
    cn_err err =
        cn_residual_encode(&header, &f->layout, f->change, f->residual, f->next, &f->frame);

    memset(f->received, 0, sizeof(f->received));
    if (!err)
        assert_int_equal(cn_update_apply(f->frame.data, f->frame.size, &f->layout, f->received),
                         CN_OK);
    return err;
}

static void sent_and_kept_make_up_the_whole(void **state)
{
    struct fixture *f = *state;
    float whole[TOTAL];

    cn_test_fill(f->change, TOTAL, 1, 0.01f);
    cn_test_fill(f->residual, TOTAL, 2, 0.01f);
    for (size_t i = 0; i < TOTAL; i++)
        whole[i] = f->change[i] + f->residual[i];
    assert_int_equal(send_change(f), CN_OK);
    assert_memory_equal(f->change, whole, sizeof(whole)); // u, for a refusal
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(f->next[i] == whole[i] - f->received[i]);
}

static void after_a_refusal_nothing_of_the_change_is_missing(void **state)
{
    struct fixture *f = *state;
    float changes[TOTAL];
    float first[TOTAL];

    cn_test_fill(changes, TOTAL, 3, 0.01f);
    memcpy(f->change, changes, sizeof(changes));
    assert_int_equal(send_change(f), CN_OK);
    memcpy(f->residual, f->change, sizeof(changes)); // refused: e' = u
    memcpy(first, f->received, sizeof(first));
    memset(f->change, 0, sizeof(f->change));
    f->frame.size = 0;
    assert_int_equal(send_change(f), CN_OK);
    assert_memory_equal(f->received, first, sizeof(first));
}

static void repeated_rounds_send_all_of_the_changes(void **state)
{
    struct fixture *f = *state;
    double sent[TOTAL] = {0};
    float constant[TOTAL];

    cn_test_fill(constant, TOTAL, 4, 0.001f);
    for (int round = 0; round < 200; round++) {
        memcpy(f->change, constant, sizeof(constant));
        f->frame.size = 0;
        assert_int_equal(send_change(f), CN_OK);
        memcpy(f->residual, f->next, sizeof(f->next)); // accepted
        for (size_t i = 0; i < TOTAL; i++)
            sent[i] += (double)f->received[i];
    }
    for (size_t i = 0; i < TOTAL; i++) {
        double missing = 200 * (double)constant[i] - sent[i] - (double)f->residual[i];

        assert_true(missing < 1e-5 && missing > -1e-5); // only float rounding
    }
}

static void what_is_too_large_to_travel_follows_later(void **state)
{
    struct fixture *f = *state;
    float sent[2] = {0};

    f->change[5] = 12;
    f->residual[5] = 12;
    f->change[6] = -100;
    for (int round = 0; round < 40; round++) {
        f->frame.size = 0;
        assert_int_equal(send_change(f), CN_OK);
        sent[0] += f->received[5];
        sent[1] += f->received[6];
        assert_true(fabsf(sent[0] + f->next[5] - 24) < 1e-3f &&
                    fabsf(sent[1] + f->next[6] + 100) < 1e-3f);
        memset(f->change, 0, sizeof(f->change));
        memcpy(f->residual, f->next, sizeof(f->next)); // accepted
    }
    assert_true(sent[0] > 23.5f && sent[1] < -99);
}

static void a_change_that_is_not_finite_sends_nothing(void **state)
{
    struct fixture *f = *state;
    static const float bad[] = {1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f};

    for (size_t i = 0; i < 3; i++) {
        memset(f->change, 0, sizeof(f->change));
        f->change[6000 + i] = bad[i];
        assert_int_equal(send_change(f), CN_EDIVERGED);
        assert_int_equal(f->frame.size, 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(sent_and_kept_make_up_the_whole),
        TEST(after_a_refusal_nothing_of_the_change_is_missing),
        TEST(repeated_rounds_send_all_of_the_changes),
        TEST(what_is_too_large_to_travel_follows_later),
        TEST(a_change_that_is_not_finite_sends_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
