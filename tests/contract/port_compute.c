// Elementwise work and losses, on every compute port.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/contract/compute_trial.h"
#include "tests/support/kernels_present.h"

static void every_entry_of_every_port_is_filled_in(void **state)
{
    (void)state;
    for (size_t p = 0; p < trial_port_count; p++) {
        const struct cn_compute_ops *ops = trial_ports[p];

        assert_non_null(ops->name);
        assert_non_null(ops->open);
        assert_non_null(ops->close);
        assert_non_null(ops->lanes);
        assert_non_null(ops->query);
        assert_non_null(ops->reserve);
        assert_non_null(ops->prepare);
        assert_non_null(ops->release);
        assert_non_null(ops->run);
        assert_non_null(ops->wait);
        assert_non_null(ops->map);
        assert_non_null(ops->unmap);
    }
}

static double map_value(const struct cn_map *op, double x)
{
    switch (op->kind) {
    case CN_MAP_RELU:
        return x < 0 ? 0 : x;
    case CN_MAP_LEAKY_RELU:
        return x < 0 ? (double)op->alpha * x : x;
    case CN_MAP_SIGMOID:
        return 1 / (1 + exp(-x));
    case CN_MAP_TANH:
        return tanh(x);
    default:
        break;
    }
    return (double)op->alpha * x;
}

static double map_slope(const struct cn_map *op, double y)
{
    switch (op->kind) {
    case CN_MAP_RELU:
        return y > 0 ? 1 : 0;
    case CN_MAP_LEAKY_RELU:
        return y > 0 ? 1 : (double)op->alpha;
    case CN_MAP_SIGMOID:
        return y * (1 - y);
    case CN_MAP_TANH:
        return 1 - y * y;
    default:
        break;
    }
    return (double)op->alpha;
}

static void maps_and_their_gradients_are_right(void **state)
{
    (void)state;
    for (int kind = CN_MAP_RELU; kind <= CN_MAP_SCALE; kind++)
        for (int gradient = 0; gradient < 2; gradient++) {
            struct trial trial = {.samples = 7};
            struct cn_map op = {.kind = (enum cn_map_kind)kind, .alpha = 0.2f, .count = 19};

            trial.call.op = gradient ? CN_OP_MAP_GRAD : CN_OP_MAP;
            trial.call.map = op;
            trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){19, true};
            if (gradient)
                trial.extent[1] = trial.extent[0];
            trial_init(&trial);
            for (size_t i = 0; i < 7 * 19; i++) {
                double x = (double)trial.data[0][i];

                trial.wanted[CN_CALL_INPUTS][i] =
                    gradient ? x * map_slope(&op, (double)trial.data[1][i]) : map_value(&op, x);
            }
            trial_check(&trial, "map");
            trial_deinit(&trial);
        }
}

// A sample of dims 2 x 3 x 5; a is whole or repeats, b is a row of 3 along the middle.
static void check_combine(enum cn_combine_kind kind, bool gradient, bool a_batched)
{
    struct cn_combine op = {.kind = kind,
                            .rank = 3,
                            .dims = {2, 3, 5},
                            .a = {15, 5, 1},
                            .b = {0, 1, 0},
                            .scale = gradient && kind == CN_COMBINE_SUB ? -1 : 1};
    struct trial trial = {.call = {.op = gradient ? CN_OP_COMBINE_GRAD : CN_OP_COMBINE},
                          .samples = 4};
    struct extent whole = {30, true};

    trial.call.combine = op;
    trial.extent[0] = gradient ? whole : (struct extent){30, a_batched};
    trial.extent[1] = (struct extent){gradient && kind != CN_COMBINE_MUL ? 0 : 3, false};
    trial.extent[CN_CALL_INPUTS] = gradient ? (struct extent){30, a_batched} : whole;
    trial_init(&trial);
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < 30; i++) {
            size_t shared = a_batched ? n * 30 + i : i;
            double b = trial.extent[1].words ? (double)trial.data[1][i / 5 % 3] : 1;
            double a = (double)trial.data[0][gradient ? n * 30 + i : shared];

            if (gradient)
                trial.wanted[CN_CALL_INPUTS][shared] += (double)op.scale * a * b;
            else
                trial.wanted[CN_CALL_INPUTS][n * 30 + i] = kind == CN_COMBINE_ADD   ? a + b
                                                           : kind == CN_COMBINE_SUB ? a - b
                                                                                    : a * b;
        }
    trial_check(&trial, "combine");
    trial_deinit(&trial);
}

static void arithmetic_repeats_operands_and_sums_their_gradients(void **state)
{
    (void)state;
    for (int kind = CN_COMBINE_ADD; kind <= CN_COMBINE_MUL; kind++)
        for (int i = 0; i < 4; i++)
            check_combine((enum cn_combine_kind)kind, i & 1, i & 2);
}

static void bias_gradients_sum_rows_and_planes(void **state)
{
    (void)state;
    for (size_t inner = 1; inner < 20; inner += 9) {
        struct trial trial = {.call = {.op = CN_OP_BIAS_GRAD}, .samples = 5};

        trial.call.bias = (struct cn_bias){.rows = 2, .channels = 7, .inner = inner, .scale = 0.5f};
        trial.extent[0] = (struct extent){2 * 7 * inner, true};
        trial.extent[CN_CALL_INPUTS] = (struct extent){7, false};
        trial_init(&trial);
        for (size_t i = 0; i < 5 * 2 * 7 * inner; i++)
            trial.wanted[CN_CALL_INPUTS][i / inner % 7] += 0.5 * (double)trial.data[0][i];
        trial_check(&trial, "bias gradient");
        trial_deinit(&trial);
    }
}

static void reference_cross_entropy(struct trial *trial, size_t outputs)
{
    for (size_t n = 0; n < trial->samples; n++) {
        const float *x = trial->data[0] + n * outputs;
        int32_t label = (int32_t)(n * 5 % outputs);
        double sum = 0;
        size_t best = 0;

        memcpy(&trial->data[1][n], &label, sizeof(label));
        for (size_t j = 0; j < outputs; j++) {
            sum += exp((double)x[j]);
            best = x[j] > x[best] ? j : best;
        }
        trial->loss += log(sum) - (double)x[label];
        trial->correct += best == (size_t)label;
        for (size_t j = 0; j < outputs; j++)
            trial->wanted[CN_CALL_INPUTS][n * outputs + j] =
                exp((double)x[j]) / sum - (j == (size_t)label);
    }
}

static void losses_and_their_gradients_are_right(void **state)
{
    struct trial entropy = {.call = {.op = CN_OP_CROSS_ENTROPY, .loss = {10}}, .samples = 9};
    struct trial mse = {.call = {.op = CN_OP_MSE, .loss = {6}}, .samples = 9};

    (void)state;
    entropy.extent[0] = entropy.extent[CN_CALL_INPUTS] = (struct extent){10, true};
    entropy.extent[1] = (struct extent){1, true};
    trial_init(&entropy);
    reference_cross_entropy(&entropy, 10);
    trial_check(&entropy, "cross-entropy");
    trial_deinit(&entropy);

    mse.extent[0] = mse.extent[1] = mse.extent[CN_CALL_INPUTS] = (struct extent){6, true};
    trial_init(&mse);
    for (size_t i = 0; i < 9 * 6; i++) {
        double difference = (double)mse.data[0][i] - (double)mse.data[1][i];

        mse.loss += difference * difference / 6;
        mse.wanted[CN_CALL_INPUTS][i] = 2 * difference / 6;
    }
    trial_check(&mse, "mse");
    trial_deinit(&mse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_of_every_port_is_filled_in),
        cmocka_unit_test(maps_and_their_gradients_are_right),
        cmocka_unit_test(arithmetic_repeats_operands_and_sums_their_gradients),
        cmocka_unit_test(bias_gradients_sum_rows_and_planes),
        cmocka_unit_test(losses_and_their_gradients_are_right),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
