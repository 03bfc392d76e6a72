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

static void bias_gradients_sum_rows_and_planes(void **state)
{
    static const size_t shapes[][2] = {{2, 1}, {2, 10}, {2, 19}, {50, 1}, {50, 3}}; // rows, inner

    (void)state;
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        struct trial trial = {.call = {.op = CN_OP_BIAS_GRAD}, .samples = 5};
        size_t rows = shapes[shape][0], inner = shapes[shape][1];

        trial.call.bias =
            (struct cn_bias){.rows = rows, .channels = 7, .inner = inner, .scale = 0.5f};
        trial.extent[0] = (struct extent){rows * 7 * inner, true};
        trial.extent[CN_CALL_INPUTS] = (struct extent){7, false};
        trial_init(&trial);
        for (size_t i = 0; i < 5 * rows * 7 * inner; i++)
            trial.wanted[CN_CALL_INPUTS][i / inner % 7] += 0.5 * (double)trial.data[0][i];
        trial_check(&trial, "bias gradient");
        trial_deinit(&trial);
    }
}

// Element (row, c) of the logits.
static size_t logit(const struct cn_loss_call *op, size_t row, size_t c)
{
    size_t sample = row / op->rows * op->rows * op->outputs, r = row % op->rows;

    return sample + (op->classes_first ? r + c * op->rows : r * op->outputs + c);
}

// The sum of -w_c t_c log softmax_c, and its slope by the softmax's definition.
static void reference_row(struct trial *trial, size_t row, size_t label)
{
    const struct cn_loss_call *op = &trial->call.loss;
    const float *weights = trial->extent[2].words ? trial->data[2] : NULL;
    double sum = 0, shares = 0;
    size_t best = 0;

    for (size_t c = 0; c < op->outputs; c++) {
        sum += exp((double)trial->data[0][logit(op, row, c)]);
        if (trial->data[0][logit(op, row, c)] > trial->data[0][logit(op, row, best)])
            best = c;
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t c = 0; c < op->outputs; c++) {
            double x = (double)trial->data[0][logit(op, row, c)];
            double share = (c == label ? 1 - (double)op->smoothing : 0) +
                           (double)op->smoothing / (double)op->outputs;

            share *= weights ? (double)weights[c] : 1;
            if (pass == 0) {
                shares += share;
                trial->loss += share == 0 ? 0 : share * (log(sum) - x);
            } else {
                trial->wanted[CN_CALL_INPUTS][logit(op, row, c)] = shares * exp(x) / sum - share;
            }
        }
    trial->weight += weights ? (double)weights[label] : 1;
    trial->correct += best == label;
}

static void check_cross_entropy(struct cn_loss_call op, bool weighted)
{
    struct trial trial = {.call = {.op = CN_OP_CROSS_ENTROPY}, .samples = 9};

    trial.call.loss = op;
    trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){op.rows * op.outputs, true};
    trial.extent[1] = (struct extent){op.rows, true};
    trial.extent[2] = (struct extent){weighted ? op.outputs : 0, false};
    trial_init(&trial);
    for (size_t c = 0; weighted && c < op.outputs; c++)
        trial.data[2][c] = 0.5f + fabsf(trial.data[2][c]);
    for (size_t row = 0; row < 9 * op.rows; row++) {
        int32_t label = (int32_t)(row * 5 % op.outputs);

        memcpy(&trial.data[1][row], &label, sizeof(label));
        if (label != op.ignore)
            reference_row(&trial, row, (size_t)label);
    }
    trial_check(&trial, "cross-entropy");
    trial_deinit(&trial);
}

// Classes that -inf hides, also where a thread sees no other before.
static void cross_entropy_leaves_out_hidden_classes(void **state)
{
    (void)state;
    for (size_t outputs = 3; outputs < 3000; outputs = 30 * outputs + 1) {
        struct trial trial = {.call = {.op = CN_OP_CROSS_ENTROPY}, .samples = 4};

        trial.call.loss = (struct cn_loss_call){.outputs = outputs, .rows = 2, .ignore = INT32_MIN};
        trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){2 * outputs, true};
        trial.extent[1] = (struct extent){2, true};
        trial_init(&trial);
        for (size_t row = 0; row < 8; row++) {
            int32_t label = (int32_t)(row * 7 % outputs);

            for (size_t c = 0; c < outputs; c++)
                if (c != (size_t)label && (c + row) % 3)
                    trial.data[0][row * outputs + c] = -INFINITY;
            memcpy(&trial.data[1][row], &label, sizeof(label));
            reference_row(&trial, row, (size_t)label);
        }
        trial_check(&trial, "cross-entropy of some classes");
        trial_deinit(&trial);
    }
}

static void cross_entropy_counts_rows_weights_and_smoothed_targets(void **state)
{
    (void)state;
    check_cross_entropy((struct cn_loss_call){.outputs = 10, .rows = 1, .ignore = INT32_MIN},
                        false);
    check_cross_entropy((struct cn_loss_call){.outputs = 7, .rows = 60, .ignore = 3}, true);
    for (int i = 0; i < 16; i++)
        check_cross_entropy((struct cn_loss_call){.outputs = 7,
                                                  .rows = 5,
                                                  .classes_first = i & 1,
                                                  .ignore = i & 2 ? 3 : INT32_MIN,
                                                  .smoothing = i & 4 ? 0.1f : 0},
                            i & 8);
}

static double value_loss(enum cn_op op, double delta, double y, double target, double *slope)
{
    double d = y - target, sigmoid = 1 / (1 + exp(-y));

    switch (op) {
    case CN_OP_BINARY_ENTROPY:
        *slope = sigmoid - target;
        return -target * log(sigmoid) - (1 - target) * log(1 - sigmoid);
    case CN_OP_MSE:
        *slope = 2 * d;
        return d * d;
    case CN_OP_HUBER:
        *slope = delta > 0 ? fmax(-delta, fmin(delta, d)) : (d > 0) - (d < 0);
        if (!(delta > 0))
            return fabs(d);
        return fabs(d) <= delta ? d * d / 2 : delta * (fabs(d) - delta / 2);
    default:
        *slope = 1;
        return y;
    }
}

static void check_value_loss(enum cn_op op, float delta, uint32_t outputs)
{
    struct trial trial = {.call = {.op = op}, .samples = 9, .weight = 9};

    trial.call.loss = (struct cn_loss_call){.outputs = outputs, .rows = 1, .delta = delta};
    trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){outputs, true};
    trial.extent[1] = (struct extent){op == CN_OP_MEAN_LOSS ? 0 : outputs, true};
    trial_init(&trial);
    for (size_t i = 0; i < (size_t)9 * outputs; i++) {
        double slope, target;

        if (op == CN_OP_BINARY_ENTROPY)
            trial.data[1][i] = fabsf(trial.data[1][i]);
        target = op == CN_OP_MEAN_LOSS ? 0 : (double)trial.data[1][i];
        trial.loss +=
            value_loss(op, (double)delta, (double)trial.data[0][i], target, &slope) / outputs;
        trial.wanted[CN_CALL_INPUTS][i] = slope / outputs;
    }
    trial_check(&trial, "loss of values");
    trial_deinit(&trial);
}

static void losses_of_values_and_their_gradients_are_right(void **state)
{
    (void)state;
    for (uint32_t outputs = 6; outputs < 100000; outputs = 6 * outputs + 1) // 6 to 48211
        check_value_loss(CN_OP_MSE, 0, outputs);
    check_value_loss(CN_OP_BINARY_ENTROPY, 0, 6);
    check_value_loss(CN_OP_HUBER, 0, 6);
    check_value_loss(CN_OP_HUBER, 0.3f, 6);
    check_value_loss(CN_OP_MEAN_LOSS, 0, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_of_every_port_is_filled_in),
        cmocka_unit_test(bias_gradients_sum_rows_and_planes),
        cmocka_unit_test(cross_entropy_counts_rows_weights_and_smoothed_targets),
        cmocka_unit_test(cross_entropy_leaves_out_hidden_classes),
        cmocka_unit_test(losses_of_values_and_their_gradients_are_right),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
