// The cases that every compute port must pass, against plain loops in double precision.
// Tolerance: 2e-5 of the largest value; the optimizer is compared to the bit.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/port/compute.h"

#define TOLERANCE 2e-5
#define OPERANDS (CN_CALL_INPUTS + CN_CALL_OUTPUTS)

static const struct cn_compute_ops *const ports[] = {&cn_compute_cpu};
#define PORT_COUNT (sizeof(ports) / sizeof(ports[0]))

static const uint32_t thread_counts[] = {1, 2, 3};

// Words of an operand, for a sample when batched; 0 when it is left out.
struct extent {
    size_t words;
    bool batched;
};

struct trial {
    struct cn_call call;
    struct extent extent[OPERANDS]; // inputs, then outputs
    uint32_t samples;
    float *data[OPERANDS];    // of all samples
    double *wanted[OPERANDS]; // outputs by the reference
    double loss;
    uint64_t correct;
};

static float next_value(void)
{
    static uint32_t state = 12345;

    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1;
}

static size_t words_of(const struct trial *trial, int operand)
{
    const struct extent *extent = &trial->extent[operand];

    return extent->words * (extent->batched ? trial->samples : 1);
}

static void init_trial(struct trial *trial)
{
    for (int i = 0; i < OPERANDS; i++) {
        trial->data[i] = calloc(words_of(trial, i) + 1, sizeof(float));
        trial->wanted[i] = calloc(words_of(trial, i) + 1, sizeof(double));
        for (size_t j = 0; i < CN_CALL_INPUTS && j < words_of(trial, i); j++)
            trial->data[i][j] = next_value();
    }
}

static void deinit_trial(struct trial *trial)
{
    for (int i = 0; i < OPERANDS; i++) {
        free(trial->data[i]);
        free(trial->wanted[i]);
    }
}

static struct cn_operand *operand_of(struct cn_call *call, int i)
{
    return i < CN_CALL_INPUTS ? &call->in[i] : &call->out[i - CN_CALL_INPUTS];
}

// Samples lie in the batch, shared inputs in the weights, shared outputs in the gradients.
static void place_operands(struct trial *trial, struct cn_call *call,
                           struct cn_compute_sizes *sizes)
{
    *sizes = (struct cn_compute_sizes){0};
    *call = trial->call;
    for (int i = 0; i < OPERANDS; i++) {
        struct cn_operand *operand = operand_of(call, i);

        if (!trial->extent[i].words)
            continue;
        operand->arena = trial->extent[i].batched ? CN_ARENA_BATCH
                         : i < CN_CALL_INPUTS     ? CN_ARENA_WEIGHTS
                                                  : CN_ARENA_GRADIENTS;
        operand->stride = trial->extent[i].batched ? trial->extent[i].words : 0;
        operand->offset = sizes->words[operand->arena];
        sizes->words[operand->arena] += (words_of(trial, i) + 15) / 16 * 16;
    }
}

static void copy_operands(const struct cn_compute_ops *ops, struct cn_compute *device,
                          struct trial *trial, struct cn_call *call, bool in)
{
    for (int i = in ? 0 : CN_CALL_INPUTS; i < (in ? CN_CALL_INPUTS : OPERANDS); i++) {
        struct cn_operand *operand = operand_of(call, i);
        size_t size = words_of(trial, i) * sizeof(float);
        void *host;

        if (operand->arena == CN_ARENA_NONE)
            continue;
        assert_int_equal(ops->map(device, operand->arena, &host), CN_OK);
        if (in)
            memcpy((float *)host + operand->offset, trial->data[i], size);
        else
            memcpy(trial->data[i], (float *)host + operand->offset, size);
        assert_int_equal(ops->unmap(device, operand->arena), CN_OK);
    }
}

static void run_flat(const struct cn_compute_ops *ops, struct cn_compute *device, enum cn_op op,
                     const struct cn_hyper *hyper)
{
    struct cn_call call = {.op = op};
    struct cn_compute_program *program;

    assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
    assert_int_equal(ops->run(device, program, hyper), CN_OK);
    ops->release(device, program);
}

// Runs the call as often as times says; with CN_WRITE_STEP the later runs add.
static void run_trial(const struct cn_compute_ops *ops, uint32_t threads, struct trial *trial,
                      unsigned times, struct cn_compute_result *result)
{
    struct cn_compute_config config = {.threads = threads};
    struct cn_hyper hyper = {.samples = trial->samples, .first = true};
    struct cn_compute_sizes sizes;
    struct cn_compute_program *program;
    struct cn_compute *device;
    struct cn_call call;
    size_t workspace;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    place_operands(trial, &call, &sizes);
    assert_int_equal(ops->query(device, &call, trial->samples, &workspace), CN_OK);
    sizes.words[CN_ARENA_ACTIVATIONS] = workspace;
    if (workspace)
        call.workspace.arena = CN_ARENA_ACTIVATIONS;
    assert_int_equal(ops->reserve(device, &sizes, trial->samples), CN_OK);
    assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
    copy_operands(ops, device, trial, &call, true);
    for (unsigned i = 0; i < times; i++) {
        assert_int_equal(ops->run(device, program, &hyper), CN_OK);
        hyper.first = false;
    }
    assert_int_equal(ops->wait(device, result), CN_OK);
    if (call.out[0].arena == CN_ARENA_GRADIENTS)
        run_flat(ops, device, CN_OP_SUM_LANES, &hyper);
    copy_operands(ops, device, trial, &call, false);
    ops->release(device, program);
    ops->close(device);
}

static void compare_outputs(const struct cn_compute_ops *ops, const struct trial *trial,
                            const char *name, unsigned times)
{
    for (int i = CN_CALL_INPUTS; i < OPERANDS; i++) {
        bool integers = trial->call.op == CN_OP_MAX_POOL && i > CN_CALL_INPUTS;
        double largest = 1, worst = 0;

        for (size_t j = 0; j < words_of(trial, i); j++) {
            double wanted = trial->wanted[i][j] * times;
            int32_t integer;
            double value, error;

            memcpy(&integer, &trial->data[i][j], sizeof(integer));
            value = integers ? integer : (double)trial->data[i][j];
            error = fabs(value - (integers ? trial->wanted[i][j] : wanted));
            largest = fmax(largest, fabs(wanted));
            worst = error > worst || isnan(error) ? error : worst;
        }
        if (!(worst <= TOLERANCE * largest))
            fail_msg("%s, %s, output %d: off by %g of %g", ops->name, name, i - CN_CALL_INPUTS,
                     worst, largest);
    }
}

// On every port and thread count: the reference's numbers, and twice the same bits.
static void check_trial(struct trial *trial, const char *name)
{
    bool shared = trial->extent[CN_CALL_INPUTS].words && !trial->extent[CN_CALL_INPUTS].batched;
    unsigned times = shared ? 2 : 1;
    size_t size = words_of(trial, CN_CALL_INPUTS) * sizeof(float);
    float *before = malloc(size + 1);

    trial->call.write = shared ? CN_WRITE_STEP : CN_WRITE_SET;
    for (size_t p = 0; p < PORT_COUNT; p++)
        for (size_t t = 0; t < sizeof(thread_counts) / sizeof(thread_counts[0]); t++) {
            struct cn_compute_result result;

            run_trial(ports[p], thread_counts[t], trial, times, &result);
            compare_outputs(ports[p], trial, name, times);
            if (fabs(result.loss - trial->loss * times) > TOLERANCE * (1 + fabs(trial->loss)))
                fail_msg("%s: loss %g, wanted %g", name, result.loss, trial->loss);
            assert_true(result.correct == trial->correct * times);
            memcpy(before, trial->data[CN_CALL_INPUTS], size);
            run_trial(ports[p], thread_counts[t], trial, times, &result);
            assert_memory_equal(before, trial->data[CN_CALL_INPUTS], size);
        }
    free(before);
}

static void every_entry_of_every_port_is_filled_in(void **state)
{
    (void)state;
    for (size_t p = 0; p < PORT_COUNT; p++) {
        const struct cn_compute_ops *ops = ports[p];

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
    init_trial(&trial);
    reference_matmul(&trial);
    check_trial(&trial, name);
    deinit_trial(&trial);
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
    init_trial(&trial);
    wanted = trial.wanted[CN_CALL_INPUTS];
    visit.x = op == CN_OP_CONV ? trial.data[0] : trial.data[1];
    visit.weight = trial.data[1];
    visit.dy = trial.data[0];
    visit.y = op == CN_OP_CONV ? wanted : NULL;
    visit.dx = op == CN_OP_CONV_GRAD_INPUT ? wanted : NULL;
    visit.dweight = op == CN_OP_CONV_GRAD_WEIGHT ? wanted : NULL;
    visit_all(&visit, w);
    check_trial(&trial, name);
    deinit_trial(&trial);
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
        window(1, 8, 1, 8, 8, 3, 1, 1, 1, 1),   // the digits' first layer
        window(8, 16, 1, 4, 4, 3, 1, 1, 1, 1),  // and its second
        window(3, 5, 1, 7, 9, 3, 1, 0, 0, 1),   // no padding, odd sizes
        window(4, 13, 1, 9, 7, 5, 2, 2, 1, 1),  // stride, uneven padding
        window(2, 3, 1, 11, 11, 3, 3, 1, 2, 1), // stride as large as the kernel
        window(3, 4, 1, 10, 10, 1, 2, 0, 0, 1), // stride larger than the kernel
        window(3, 4, 1, 12, 12, 3, 2, 2, 2, 2), // stride and dilation
        window(4, 4, 1, 9, 9, 3, 1, 3, 3, 3),   // dilation
        window(6, 9, 3, 6, 6, 3, 1, 1, 1, 1),   // groups
        window(8, 8, 8, 7, 7, 3, 2, 1, 1, 1),   // depthwise
        window(4, 8, 4, 5, 5, 3, 1, 1, 1, 1),   // depthwise, two outputs each
        window(16, 24, 1, 6, 6, 1, 1, 0, 0, 1), // pointwise
        window(9, 7, 1, 1, 40, 7, 1, 3, 3, 1),  // 1-D
        window(3, 2, 1, 1, 21, 4, 3, 2, 0, 2),  // 1-D, stride and dilation
        window(2, 2, 1, 3, 3, 3, 1, 4, 4, 1),   // more padding than input
    };

    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++)
        for (uint32_t samples = 1; samples <= 5; samples += 2) {
            check_conv(&windows[i], samples, CN_OP_CONV);
            check_conv(&windows[i], samples, CN_OP_CONV_GRAD_INPUT);
            check_conv(&windows[i], samples, CN_OP_CONV_GRAD_WEIGHT);
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
    init_trial(&trial);
    if (op == CN_OP_AVERAGE_POOL_GRAD)
        reference_average_grad(&trial, w);
    else
        reference_pool(&trial, w, op == CN_OP_MAX_POOL);
    check_trial(&trial, "pool");
    deinit_trial(&trial);
}

static void check_max_pool_grad(const struct cn_window *w)
{
    struct trial trial = {.call = {.op = CN_OP_MAX_POOL_GRAD, .window = *w}, .samples = 3};
    size_t in = (size_t)w->in[0] * w->in[1], out = (size_t)w->out[0] * w->out[1];

    trial.extent[0] = (struct extent){w->channels_in * out, true};
    trial.extent[1] = trial.extent[0];
    trial.extent[CN_CALL_INPUTS] = (struct extent){w->channels_in * in, true};
    init_trial(&trial);
    for (size_t i = 0; i < trial.samples * w->channels_in * out; i++) {
        int32_t place = (int32_t)(i * 7 % in);

        memcpy(&trial.data[1][i], &place, sizeof(place));
        trial.wanted[CN_CALL_INPUTS][i / out * in + (size_t)place] += (double)trial.data[0][i];
    }
    check_trial(&trial, "max pool gradient");
    deinit_trial(&trial);
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
    case CN_MAP_SCALE:
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
    case CN_MAP_SCALE:
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
            init_trial(&trial);
            for (size_t i = 0; i < 7 * 19; i++) {
                double x = (double)trial.data[0][i];

                trial.wanted[CN_CALL_INPUTS][i] =
                    gradient ? x * map_slope(&op, (double)trial.data[1][i]) : map_value(&op, x);
            }
            check_trial(&trial, "map");
            deinit_trial(&trial);
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
    init_trial(&trial);
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
    check_trial(&trial, "combine");
    deinit_trial(&trial);
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
        init_trial(&trial);
        for (size_t i = 0; i < 5 * 2 * 7 * inner; i++)
            trial.wanted[CN_CALL_INPUTS][i / inner % 7] += 0.5 * (double)trial.data[0][i];
        check_trial(&trial, "bias gradient");
        deinit_trial(&trial);
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
    init_trial(&entropy);
    reference_cross_entropy(&entropy, 10);
    check_trial(&entropy, "cross-entropy");
    deinit_trial(&entropy);

    mse.extent[0] = mse.extent[1] = mse.extent[CN_CALL_INPUTS] = (struct extent){6, true};
    init_trial(&mse);
    for (size_t i = 0; i < 9 * 6; i++) {
        double difference = (double)mse.data[0][i] - (double)mse.data[1][i];

        mse.loss += difference * difference / 6;
        mse.wanted[CN_CALL_INPUTS][i] = 2 * difference / 6;
    }
    check_trial(&mse, "mse");
    deinit_trial(&mse);
}

// One step of the optimizer over all its numbers; finite says what the port must find.
static void run_sgd(const struct cn_compute_ops *ops, uint32_t threads, float *arrays[3],
                    size_t count, const struct cn_hyper *hyper, bool finite)
{
    static const enum cn_arena arenas[] = {CN_ARENA_GRADIENTS, CN_ARENA_WEIGHTS,
                                           CN_ARENA_OPTIMIZER};
    struct cn_compute_config config = {.threads = threads};
    struct cn_compute_sizes sizes = {0};
    struct cn_compute_result result;
    struct cn_compute *device;
    void *host;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    for (int i = 0; i < 3; i++)
        sizes.words[arenas[i]] = count;
    assert_int_equal(ops->reserve(device, &sizes, 1), CN_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->map(device, arenas[i], &host), CN_OK);
        memcpy(host, arrays[i], count * sizeof(float));
        assert_int_equal(ops->unmap(device, arenas[i]), CN_OK);
    }
    run_flat(ops, device, CN_OP_SGD, hyper);
    assert_int_equal(ops->wait(device, &result), CN_OK);
    assert_int_equal(result.finite, finite);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->map(device, arenas[i], &host), CN_OK);
        memcpy(arrays[i], host, count * sizeof(float));
        assert_int_equal(ops->unmap(device, arenas[i]), CN_OK);
    }
    ops->close(device);
}

#define SGD_COUNT 1003

// volatile keeps the compiler of the test from contracting or reordering.
static void the_optimizer_is_exact_to_the_bit(void **state)
{
    const struct cn_hyper hyper = {
        .gradient_scale = 0.031f, .learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f};
    float wanted[3][SGD_COUNT], values[3][SGD_COUNT];
    float *arrays[3] = {values[0], values[1], values[2]};

    (void)state;
    for (size_t p = 0; p < PORT_COUNT; p++)
        for (uint32_t threads = 1; threads < 4; threads++) {
            for (size_t i = 0; i < SGD_COUNT; i++) {
                volatile float g, decay, keep, step;

                for (int j = 0; j < 3; j++)
                    values[j][i] = wanted[j][i] = next_value();
                g = wanted[0][i] * hyper.gradient_scale;
                decay = hyper.weight_decay * wanted[1][i];
                decay = g + decay;
                keep = hyper.momentum * wanted[2][i];
                wanted[2][i] = keep + decay;
                step = hyper.learning_rate * wanted[2][i];
                wanted[1][i] = wanted[1][i] - step;
            }
            run_sgd(ports[p], threads, arrays, SGD_COUNT, &hyper, true);
            assert_memory_equal(values[1], wanted[1], sizeof(wanted[1]));
            assert_memory_equal(values[2], wanted[2], sizeof(wanted[2]));
        }
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    const struct cn_hyper hyper = {.gradient_scale = 1, .learning_rate = 0.1f};
    float values[3][SGD_COUNT], before[3][SGD_COUNT];
    float *arrays[3] = {values[0], values[1], values[2]};

    (void)state;
    for (size_t p = 0; p < PORT_COUNT; p++)
        for (size_t i = 0; i < 3; i++) {
            for (size_t j = 0; j < 3 * SGD_COUNT; j++)
                values[j / SGD_COUNT][j % SGD_COUNT] = next_value();
            values[0][i * 500] = bad[i];
            memcpy(before, values, sizeof(before));
            run_sgd(ports[p], 2, arrays, SGD_COUNT, &hyper, false);
            assert_memory_equal(values[1], before[1], sizeof(before[1]));
            assert_memory_equal(values[2], before[2], sizeof(before[2]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_of_every_port_is_filled_in),
        cmocka_unit_test(products_are_right_for_all_shapes),
        cmocka_unit_test(products_scale_and_cut_off),
        cmocka_unit_test(convolutions_and_their_gradients_are_right),
        cmocka_unit_test(pooling_and_its_gradients_are_right),
        cmocka_unit_test(maps_and_their_gradients_are_right),
        cmocka_unit_test(arithmetic_repeats_operands_and_sums_their_gradients),
        cmocka_unit_test(bias_gradients_sum_rows_and_planes),
        cmocka_unit_test(losses_and_their_gradients_are_right),
        cmocka_unit_test(the_optimizer_is_exact_to_the_bit),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
