// Layers with weights and pooling, on every compute port.
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

// Reference: c = alpha op(a) op(b) + bias_scale bias.
static void reference_matmul(struct trial *trial)
{
    const struct cn_matmul *op = &trial->call.matmul;
    size_t rows = op->rows * (op->inner_batched ? 1 : trial->samples);
    size_t inner = op->inner * (op->inner_batched ? trial->samples : 1);

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < op->cols; j++) {
            double sum = 0;

            for (size_t k = 0; k < inner; k++)
                sum += (double)trial->data[0][op->transpose_a ? k * rows + i : i * inner + k] *
                       (double)trial->data[1][op->transpose_b ? j * inner + k : k * op->cols + j];
            sum *= (double)op->alpha;
            if (trial->extent[2].words)
                sum += (double)op->bias_scale * (double)trial->data[2][j];
            trial->wanted[CN_CALL_INPUTS][i * op->cols + j] = op->relu && sum < 0 ? 0 : sum;
        }
}

static void check_matmul(struct cn_matmul op, uint32_t samples, bool bias)
{
    struct trial trial = {.call = {.op = CN_OP_MATMUL, .matmul = op}, .samples = samples};
    char name[96];

    trial.extent[0] = (struct extent){op.rows * op.inner, true};
    trial.extent[1] = (struct extent){op.inner * op.cols, op.inner_batched};
    trial.extent[2] = (struct extent){bias ? op.cols : 0, false};
    trial.extent[CN_CALL_INPUTS] = (struct extent){op.rows * op.cols, !op.inner_batched};
    snprintf(name, sizeof(name), "matmul %zux%zux%zu%s%s, %u samples", op.rows, op.inner, op.cols,
             op.transpose_a ? " a'" : "", op.transpose_b ? " b'" : "", samples);
    trial_init(&trial);
    reference_matmul(&trial);
    trial_check(&trial, name);
    trial_deinit(&trial);
}

static void products_are_right_for_all_shapes(void **state)
{
    static const size_t sizes[] = {1, 2, 10, 33, 70};
    static const uint32_t samples[] = {1, 5, 37};

    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++)
            for (size_t s = 0; s < 3; s++)
                for (int transpose = 0; transpose < 2; transpose++) {
                    struct cn_matmul op = {.rows = 1,
                                           .inner = sizes[i],
                                           .cols = sizes[j],
                                           .transpose_b = transpose,
                                           .alpha = 1,
                                           .bias_scale = 1};

                    check_matmul(op, samples[s], true);
                    op.transpose_b = false;
                    op.transpose_a = true;
                    op.inner_batched = true;
                    op.rows = sizes[i];
                    op.inner = 1;
                    if (transpose)
                        check_matmul(op, samples[s], false);
                }
}

static void products_scale_and_cut_off(void **state)
{
    struct cn_matmul op = {.rows = 3, .inner = 600, .cols = 40, .alpha = 0.5f, .bias_scale = -2};

    (void)state;
    check_matmul(op, 4, true);
    op.relu = true;
    op.transpose_b = true;
    check_matmul(op, 4, true);
}

// Calls visit(index of x, of weight, of y) for each product of a convolution.
struct visit {
    struct trial *trial;
    const float *x, *weight, *dy;
    double *y, *dx, *dweight;
};

static void visit_product(struct visit *visit, size_t x, size_t weight, size_t y)
{
    if (visit->y)
        visit->y[y] += (double)visit->x[x] * (double)visit->weight[weight];
    if (visit->dx)
        visit->dx[x] += (double)visit->dy[y] * (double)visit->weight[weight];
    if (visit->dweight)
        visit->dweight[weight] += (double)visit->dy[y] * (double)visit->x[x];
}

static void visit_output(struct visit *visit, const struct cn_window *w, size_t n, size_t o,
                         size_t at)
{
    size_t group_in = w->channels_in / w->groups;
    size_t group = o / (w->channels_out / w->groups);

    for (size_t tap = 0; tap < group_in * w->kernel[0] * w->kernel[1]; tap++) {
        size_t kernel = tap % ((size_t)w->kernel[0] * w->kernel[1]);
        size_t c = group * group_in + tap / ((size_t)w->kernel[0] * w->kernel[1]);
        size_t row = at / w->out[1] * w->stride[0] + kernel / w->kernel[1] * w->dilation[0];
        size_t col = at % w->out[1] * w->stride[1] + kernel % w->kernel[1] * w->dilation[1];

        if (row < w->pad[0] || row - w->pad[0] >= w->in[0] || col < w->pad[1] ||
            col - w->pad[1] >= w->in[1])
            continue;
        visit_product(visit,
                      ((n * w->channels_in + c) * w->in[0] + row - w->pad[0]) * w->in[1] + col -
                          w->pad[1],
                      o * group_in * w->kernel[0] * w->kernel[1] + tap,
                      (n * w->channels_out + o) * w->out[0] * w->out[1] + at);
    }
}

static void visit_all(struct visit *visit, const struct cn_window *w)
{
    for (size_t n = 0; n < visit->trial->samples; n++)
        for (size_t o = 0; o < w->channels_out; o++)
            for (size_t at = 0; at < (size_t)w->out[0] * w->out[1]; at++)
                visit_output(visit, w, n, o, at);
}

static void check_conv(const struct cn_window *w, uint32_t samples, enum cn_op op)
{
    struct trial trial = {.call = {.op = op, .window = *w}, .samples = samples};
    struct visit visit = {.trial = &trial};
    struct extent x = {(size_t)w->channels_in * w->in[0] * w->in[1], true};
    struct extent y = {(size_t)w->channels_out * w->out[0] * w->out[1], true};
    struct extent weight = {
        (size_t)w->channels_out * w->channels_in / w->groups * w->kernel[0] * w->kernel[1], false};
    double *wanted;
    char name[128];

    trial.extent[0] = op == CN_OP_CONV ? x : y;
    trial.extent[1] = op == CN_OP_CONV_GRAD_WEIGHT ? x : weight;
    trial.extent[CN_CALL_INPUTS] = op == CN_OP_CONV ? y : op == CN_OP_CONV_GRAD_INPUT ? x : weight;
    snprintf(name, sizeof(name), "op %d: %u->%u channels / %u, %ux%u, kernel %ux%u, stride %u", op,
             w->channels_in, w->channels_out, w->groups, w->in[0], w->in[1], w->kernel[0],
             w->kernel[1], w->stride[1]);
    trial_init(&trial);
    wanted = trial.wanted[CN_CALL_INPUTS];
    visit.x = op == CN_OP_CONV ? trial.data[0] : trial.data[1];
    visit.weight = trial.data[1];
    visit.dy = trial.data[0];
    visit.y = op == CN_OP_CONV ? wanted : NULL;
    visit.dx = op == CN_OP_CONV_GRAD_INPUT ? wanted : NULL;
    visit.dweight = op == CN_OP_CONV_GRAD_WEIGHT ? wanted : NULL;
    visit_all(&visit, w);
    trial_check(&trial, name);
    trial_deinit(&trial);
}

static struct cn_window window(uint32_t in, uint32_t out, uint32_t groups, uint32_t height,
                               uint32_t width, uint32_t kernel, uint32_t stride, uint32_t pad,
                               uint32_t pad_end, uint32_t dilation)
{
    struct cn_window w = {.channels_in = in,
                          .channels_out = out,
                          .groups = groups,
                          .in = {height, width},
                          .kernel = {height == 1 ? 1 : kernel, kernel},
                          .stride = {height == 1 ? 1 : stride, stride},
                          .pad = {height == 1 ? 0 : pad, pad},
                          .dilation = {height == 1 ? 1 : dilation, dilation}};

    for (int i = 0; i < 2; i++) {
        uint32_t padded = w.in[i] + w.pad[i] + (i == 0 && height == 1 ? 0 : pad_end);

        w.out[i] = (padded - (w.kernel[i] - 1) * w.dilation[i] - 1) / w.stride[i] + 1;
    }
    return w;
}

static void convolutions_and_their_gradients_are_right(void **state)
{
    const struct cn_window windows[] = {
        window(1, 8, 1, 8, 8, 3, 1, 1, 1, 1),      // the digits' first layer
        window(8, 16, 1, 4, 4, 3, 1, 1, 1, 1),     // and its second
        window(3, 5, 1, 7, 9, 3, 1, 0, 0, 1),      // no padding, odd sizes
        window(4, 13, 1, 9, 7, 5, 2, 2, 1, 1),     // stride, uneven padding
        window(2, 3, 1, 11, 11, 3, 3, 1, 2, 1),    // stride as large as the kernel
        window(3, 4, 1, 10, 10, 1, 2, 0, 0, 1),    // stride larger than the kernel
        window(3, 4, 1, 12, 12, 3, 2, 2, 2, 2),    // stride and dilation
        window(4, 4, 1, 9, 9, 3, 1, 3, 3, 3),      // dilation
        window(6, 9, 3, 6, 6, 3, 1, 1, 1, 1),      // groups
        window(8, 8, 8, 7, 7, 3, 2, 1, 1, 1),      // depthwise
        window(4, 8, 4, 5, 5, 3, 1, 1, 1, 1),      // depthwise, two outputs each
        window(16, 24, 1, 6, 6, 1, 1, 0, 0, 1),    // pointwise
        window(12, 20, 1, 8, 12, 1, 1, 0, 0, 1),   // the same, with planes that products take
        window(5, 7, 1, 16, 15, 1, 2, 0, 0, 1),    // and with a stride
        window(9, 7, 1, 1, 40, 7, 1, 3, 3, 1),     // 1-D
        window(3, 2, 1, 1, 21, 4, 3, 2, 0, 2),     // 1-D, stride and dilation
        window(2, 2, 1, 3, 3, 3, 1, 4, 4, 1),      // more padding than input
        window(32, 36, 1, 8, 8, 3, 1, 1, 1, 1),    // enough channels for Winograd's tiles
        window(33, 20, 1, 7, 19, 3, 1, 1, 1, 1),   // planes that tiles do not fill
        window(64, 16, 1, 16, 16, 3, 1, 1, 1, 1),  // more samples than a chunk of tiles holds
        window(3, 56, 1, 64, 64, 32, 32, 0, 0, 1), // the patches of a vision transformer
    };

    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
        for (uint32_t samples = 1; samples <= 5; samples += 2) {
            check_conv(&windows[i], samples, CN_OP_CONV);
            check_conv(&windows[i], samples, CN_OP_CONV_GRAD_INPUT);
            check_conv(&windows[i], samples, CN_OP_CONV_GRAD_WEIGHT);
        }
}

static uint32_t pick(uint32_t least, uint32_t most)
{
    float part = (trial_next_value() + 1) / 2;

    return least + (uint32_t)(part * (float)(most - least + 1));
}

// Extents that differ in the two axes, kernels up to 7, uneven padding: false when they do not fit.
static bool random_window(struct cn_window *w)
{
    *w = (struct cn_window){.groups = pick(1, 3)};
    w->channels_in = w->groups * pick(1, 5);
    w->channels_out = w->groups * pick(1, 14);
    for (int i = 0; i < 2; i++) {
        uint32_t padded, reach;

        w->in[i] = pick(1, 13);
        w->kernel[i] = pick(1, 7);
        w->stride[i] = pick(1, 4);
        w->dilation[i] = pick(1, 3);
        w->pad[i] = pick(0, 3);
        padded = w->in[i] + w->pad[i] + pick(0, 3);
        reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (padded < reach)
            return false;
        w->out[i] = (padded - reach) / w->stride[i] + 1;
    }
    return true;
}

static void convolutions_of_any_shape_are_right(void **state)
{
    (void)state;
    for (int count = 0; count < 60;) {
        struct cn_window w;
        uint32_t samples = pick(1, 6);

        if (!random_window(&w))
            continue;
        check_conv(&w, samples, CN_OP_CONV);
        check_conv(&w, samples, CN_OP_CONV_GRAD_INPUT);
        check_conv(&w, samples, CN_OP_CONV_GRAD_WEIGHT);
        count++;
    }
}

// Inside of a window of one plane: visits the index of each element.
static size_t window_places(const struct cn_window *w, size_t at, size_t *places)
{
    size_t count = 0;

    for (size_t k = 0; k < (size_t)w->kernel[0] * w->kernel[1]; k++) {
        size_t row = at / w->out[1] * w->stride[0] + k / w->kernel[1] * w->dilation[0];
        size_t col = at % w->out[1] * w->stride[1] + k % w->kernel[1] * w->dilation[1];

        if (row >= w->pad[0] && row - w->pad[0] < w->in[0] && col >= w->pad[1] &&
            col - w->pad[1] < w->in[1])
            places[count++] = (row - w->pad[0]) * w->in[1] + col - w->pad[1];
    }
    return count;
}

static void reference_pool(struct trial *trial, const struct cn_window *w, bool max)
{
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];

    for (size_t i = 0; i < trial->samples * w->channels_in * out; i++) {
        const float *x = trial->data[0] + i / out * in;
        size_t places[64], best = 0;
        size_t count = window_places(w, i % out, places);
        double sum = 0;

        for (size_t j = 0; j < count; j++) {
            sum += (double)x[places[j]];
            best = x[places[j]] > x[places[best]] ? j : best;
        }
        if (max) {
            trial->wanted[CN_CALL_INPUTS][i] = (double)x[places[best]];
            trial->wanted[CN_CALL_INPUTS + 1][i] = (double)places[best];
        } else {
            trial->wanted[CN_CALL_INPUTS][i] =
                sum / (double)(w->count_pads ? (size_t)w->kernel[0] * w->kernel[1] : count);
        }
    }
}

static void reference_average_grad(struct trial *trial, const struct cn_window *w)
{
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];

    for (size_t i = 0; i < trial->samples * w->channels_in * out; i++) {
        size_t places[64];
        size_t count = window_places(w, i % out, places);
        double share = (double)trial->data[0][i] /
                       (double)(w->count_pads ? (size_t)w->kernel[0] * w->kernel[1] : count);

        for (size_t j = 0; j < count; j++)
            trial->wanted[CN_CALL_INPUTS][i / out * in + places[j]] += share;
    }
}

static void check_pool(const struct cn_window *w, enum cn_op op)
{
    struct trial trial = {.call = {.op = op, .window = *w}, .samples = 5};
    size_t in = (size_t)w->channels_in * w->in[0] * w->in[1];
    size_t out = (size_t)w->channels_in * w->out[0] * w->out[1];

    trial.extent[0] = (struct extent){op == CN_OP_AVERAGE_POOL_GRAD ? out : in, true};
    trial.extent[CN_CALL_INPUTS] = (struct extent){op == CN_OP_AVERAGE_POOL_GRAD ? in : out, true};
    if (op == CN_OP_MAX_POOL)
        trial.extent[CN_CALL_INPUTS + 1] = (struct extent){out, true};
    trial_init(&trial);
    if (op == CN_OP_AVERAGE_POOL_GRAD)
        reference_average_grad(&trial, w);
    else
        reference_pool(&trial, w, op == CN_OP_MAX_POOL);
    trial_check(&trial, "pool");
    trial_deinit(&trial);
}

static void check_max_pool_grad(const struct cn_window *w)
{
    struct trial trial = {.call = {.op = CN_OP_MAX_POOL_GRAD, .window = *w}, .samples = 3};
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];

    trial.extent[0] = (struct extent){w->channels_in * out, true};
    trial.extent[1] = trial.extent[0];
    trial.extent[CN_CALL_INPUTS] = (struct extent){w->channels_in * in, true};
    trial_init(&trial);
    for (size_t i = 0; i < trial.samples * w->channels_in * out; i++) {
        size_t places[64], inside = window_places(w, i % out, places);
        int32_t place = (int32_t)places[i * 7 % inside]; // as MAX_POOL may find it

        memcpy(&trial.data[1][i], &place, sizeof(place));
        trial.wanted[CN_CALL_INPUTS][i / out * in + (size_t)place] += (double)trial.data[0][i];
    }
    trial_check(&trial, "max pool gradient");
    trial_deinit(&trial);
}

static void pooling_and_its_gradients_are_right(void **state)
{
    struct cn_window windows[] = {
        window(4, 4, 1, 8, 8, 2, 2, 0, 0, 1), window(3, 3, 1, 7, 9, 3, 2, 1, 1, 1),
        window(2, 2, 1, 6, 6, 3, 1, 0, 0, 1), window(5, 5, 1, 1, 20, 4, 3, 1, 2, 1),
        window(3, 3, 1, 9, 9, 2, 2, 0, 0, 1),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        check_pool(&windows[i], CN_OP_MAX_POOL);
        check_max_pool_grad(&windows[i]);
        for (int count_pads = 0; count_pads < 2; count_pads++) {
            windows[i].count_pads = count_pads;
            check_pool(&windows[i], CN_OP_AVERAGE_POOL);
            check_pool(&windows[i], CN_OP_AVERAGE_POOL_GRAD);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_for_all_shapes),
        cmocka_unit_test(products_scale_and_cut_off),
        cmocka_unit_test(convolutions_and_their_gradients_are_right),
        cmocka_unit_test(convolutions_of_any_shape_are_right),
        cmocka_unit_test(pooling_and_its_gradients_are_right),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
