// From a mean to a version: the aggregator and every board end with the same bits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/merge/strategy.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {{5000, CN_TENSOR_PARAM}, {30, CN_TENSOR_STAT}};
#define TOTAL 5030

static const struct cn_update_header header = {
    .weight = 1, .rule = {.mode = CN_UPDATE_TOPK, .density = 0.1, .value_bits = 2}};

static void boards_reach_the_bits_of_the_aggregator(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, 2);
    static float weights[TOTAL], board[TOTAL], residual[TOTAL], next[TOTAL], mean[TOTAL];
    struct cn_buffer frame;

    (void)state;
    cn_buffer_init(&frame, 1 << 20);
    cn_test_fill(weights, TOTAL, 1, 1);
    memcpy(board, weights, sizeof(board));
    for (uint64_t round = 0; round < 20; round++) {
        cn_test_fill(mean, TOTAL, 100 + round, 0.01f);
        frame.size = 0;
        assert_int_equal(
            cn_strategy_publish(&header, &layout, weights, mean, residual, weights, next, &frame),
            CN_OK);
        memcpy(residual, next, sizeof(next));
        assert_int_equal(cn_update_apply(frame.data, frame.size, &layout, board), CN_OK);
        assert_memory_equal(board, weights, sizeof(board));
    }
    cn_buffer_deinit(&frame);
    cn_test_layout_free(&layout);
}

// Each third version is rounded; what that takes away comes back, so that the versions stay near
// the sum of the steps.
static void what_rounding_takes_away_is_sent_later(void **state)
{
    static float weights[TOTAL], board[TOTAL], residual[TOTAL], next[TOTAL], mean[TOTAL];
    static double exact[TOTAL];
    struct cn_layout layout = cn_test_layout(tensors, 2);
    struct cn_update_header rounding = {.weight = 1, .rule = {.mode = CN_UPDATE_Q8}};
    double worst = 0;
    struct cn_buffer frame;

    (void)state;
    cn_buffer_init(&frame, 1 << 20);
    cn_test_fill(weights, TOTAL, 1, 1);
    memcpy(board, weights, sizeof(board));
    for (size_t i = 0; i < TOTAL; i++)
        exact[i] = (double)weights[i];
    for (uint64_t round = 1; round <= 31; round++) {
        cn_test_fill(mean, TOTAL, 100 + round, 0.001f);
        for (size_t i = 0; i < TOTAL; i++)
            exact[i] += (double)mean[i];
        rounding.rounded = round % 3 == 0;
        assert_true(cn_strategy_may_round(&layout, weights, mean, residual));
        frame.size = 0;
        assert_int_equal(
            cn_strategy_publish(&rounding, &layout, weights, mean, residual, weights, next, &frame),
            CN_OK);
        memcpy(residual, next, sizeof(next));
        assert_int_equal(cn_update_apply(frame.data, frame.size, &layout, board), CN_OK);
        assert_memory_equal(board, weights, sizeof(board));
    }
    for (size_t i = 0; i < TOTAL; i++) {
        double error = (double)weights[i] + (double)residual[i] - exact[i];

        worst = error > worst ? error : -error > worst ? -error : worst;
    }
    assert_true(worst < 1e-5); // of weights around 1, where a step of a snapshot is 0.03
    board[7] = 15.5f;
    assert_false(cn_strategy_may_round(&layout, board, mean, residual));
    cn_buffer_deinit(&frame);
    cn_test_layout_free(&layout);
}

static void weights_that_would_not_be_finite_are_not_made(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, 2);
    static float base[TOTAL], weights[TOTAL], residual[TOTAL], next[TOTAL], mean[TOTAL];
    static float before[TOTAL];
    struct cn_buffer frame;

    (void)state;
    cn_buffer_init(&frame, 1 << 20);
    base[5001] = 1.0f / 0.0f;
    cn_test_fill(weights, TOTAL, 1, 1);
    memcpy(before, weights, sizeof(before));
    assert_int_equal(
        cn_strategy_publish(&header, &layout, base, mean, residual, weights, next, &frame),
        CN_EDIVERGED);
    assert_int_equal(frame.size, 0);
    assert_memory_equal(weights, before, sizeof(before));
    cn_buffer_deinit(&frame);
    cn_test_layout_free(&layout);
}

static void a_frame_that_does_not_fit_leaves_the_buffer_as_it_was(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, 2);
    static float base[TOTAL], weights[TOTAL], residual[TOTAL], next[TOTAL], mean[TOTAL];
    struct cn_buffer frame;
    cn_err err = CN_ERANGE;

    (void)state;
    cn_test_fill(mean, TOTAL, 1, 1);
    for (size_t limit = 4; err == CN_ERANGE; limit += 64) { // until all of it fits
        cn_buffer_init(&frame, limit);
        assert_int_equal(cn_buffer_append(&frame, "next", 4), CN_OK);
        err = cn_strategy_publish(&header, &layout, base, mean, residual, weights, next, &frame);
        if (err)
            assert_int_equal(frame.size, 4);
        cn_buffer_deinit(&frame);
    }
    assert_int_equal(err, CN_OK);
    cn_test_layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boards_reach_the_bits_of_the_aggregator),
        cmocka_unit_test(what_rounding_takes_away_is_sent_later),
        cmocka_unit_test(a_frame_that_does_not_fit_leaves_the_buffer_as_it_was),
        cmocka_unit_test(weights_that_would_not_be_finite_are_not_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
