// Times the proposals that cuDNN makes for convolutions, on a GPU, or checks their results.
//
//     bench_dnn_plans SAMPLES SIZE [PRECISION]
//     bench_dnn_plans check WINDOWS
//
// The convolutions are those of a ResNet-50 for images of SIZE x SIZE. PRECISION: 0 float32, 1
// bfloat16, 2 float16, 3 TF32. A line for each convolution or gradient has each proposal: the
// number of its engine and its milliseconds, first the one that the port takes. With check, each
// proposal computes WINDOWS random convolutions and their gradients in float32. A line for each
// engine says how many of its results were wrong, of windows with equal padding at both ends and of
// the others. Ends with 77 where there is no GPU.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ports/cuda/device.h"
#include "ports/cuda/dnn_plan.h"

#define WORKSPACE ((size_t)256 << 20)
#define PROPOSALS 24
#define RUNS 5

static double now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

struct bench {
    struct cuda cuda;
    CUdeviceptr memory[DNN_ROLES], workspace;
    uint32_t samples;
    enum cn_precision precision;
    double first, best; // sums over all lines
};

static double time_plan(struct bench *b, const struct dnn_plan *plan)
{
    const struct cuda_driver *driver = &b->cuda.library.driver;
    void *tensors[DNN_ROLES];
    double begun = 0, least = 1e9;

    for (int role = 0; role < DNN_ROLES; role++)
        tensors[role] = (void *)(uintptr_t)b->memory[role];
    for (int i = 0; i < 1 + RUNS; i++) {
        begun = now_ms();
        if (dnn_plan_run(&b->cuda.library.dnn, b->cuda.dnn, plan, tensors,
                         (void *)(uintptr_t)b->workspace) ||
            driver->stream_wait(b->cuda.stream))
            return -1;
        if (i && now_ms() - begun < least)
            least = now_ms() - begun;
    }
    return least;
}

static void bench_call(struct bench *b, enum cn_op op, const struct cn_window *w)
{
    double first = -1, best = -1;

    printf("op %d, %4u to %4u, %ux%u, stride %u, plane %3u:", op, w->channels_in, w->channels_out,
           w->kernel[0], w->kernel[1], w->stride[0], w->in[0]);
    for (uint32_t number = 0; number < PROPOSALS; number++) {
        struct dnn_plan plan;
        double ms;

        if (dnn_plan_open_number(&b->cuda.library.dnn, b->cuda.dnn, op, w, b->samples, b->precision,
                                 WORKSPACE, number, &plan))
            break;
        ms = time_plan(b, &plan);
        printf(" %lld=%.3f", (long long)plan.engine, ms);
        first = number ? first : ms;
        best = best < 0 || (ms >= 0 && ms < best) ? ms : best;
        dnn_plan_close(&b->cuda.library.dnn, &plan);
    }
    printf("\n");
    b->first += first > 0 ? first : 0;
    b->best += best > 0 ? best : 0;
}

static void bench_window(struct bench *b, uint32_t in, uint32_t out, uint32_t kernel,
                         uint32_t stride, uint32_t plane)
{
    struct cn_window w = {.channels_in = in, .channels_out = out, .groups = 1};

    for (int i = 0; i < 2; i++) {
        w.in[i] = plane;
        w.out[i] = plane / stride;
        w.kernel[i] = kernel;
        w.pad[i] = kernel / 2;
        w.stride[i] = stride;
        w.dilation[i] = 1;
    }
    for (enum cn_op op = CN_OP_CONV; op <= CN_OP_CONV_GRAD_WEIGHT; op++)
        bench_call(b, op, &w);
}

static void bench_model(struct bench *b, uint32_t size)
{
    static const uint32_t widths[] = {64, 128, 256, 512};
    uint32_t plane = size / 4, channels = 64;

    bench_window(b, 3, 64, 7, 2, size);
    for (int stage = 0; stage < 4; stage++) {
        uint32_t width = widths[stage], stride = stage ? 2 : 1;

        bench_window(b, channels, width, 1, 1, plane);
        bench_window(b, width, width, 3, stride, plane);
        bench_window(b, channels, 4 * width, 1, stride, plane);
        plane /= stride;
        channels = 4 * width;
        bench_window(b, width, channels, 1, 1, plane);
        bench_window(b, channels, width, 1, 1, plane);
        bench_window(b, width, width, 3, 1, plane);
    }
}

// Random windows and their results on the host.

#define EXTENT 12      // most rows, columns and channels
#define ROOM (1 << 17) // words of a tensor
#define ENGINES 128

struct count {
    unsigned right, wrong;
};

struct check {
    float tensors[DNN_ROLES][ROOM], found[ROOM];
    double wanted[ROOM];
    struct count counts[3][ENGINES][2]; // by op, engine, whether the padding is uneven
};

static uint32_t pick(uint32_t least, uint32_t most)
{
    static uint64_t seed = 1;

    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return least + (uint32_t)(seed >> 33) % (most - least + 1);
}

static bool random_window(struct cn_window *w, bool *uneven)
{
    *w = (struct cn_window){
        .channels_in = pick(1, EXTENT), .channels_out = pick(1, EXTENT), .groups = 1};
    *uneven = false;
    for (int i = 0; i < 2; i++) {
        uint32_t end = pick(0, 3), reach;

        w->in[i] = pick(1, EXTENT);
        w->kernel[i] = pick(1, 5);
        w->stride[i] = pick(1, 3);
        w->dilation[i] = pick(1, 2);
        w->pad[i] = pick(0, 1) ? end : pick(0, 3);
        reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (w->in[i] + w->pad[i] + end < reach)
            return false;
        w->out[i] = (w->in[i] + w->pad[i] + end - reach) / w->stride[i] + 1;
        reach += (w->out[i] - 1) * w->stride[i];
        // The library can be told of equal padding if that gives as many outputs.
        if (reach > w->in[i] + 2 * w->pad[i] || w->in[i] + 2 * w->pad[i] >= reach + w->stride[i])
            *uneven = true;
    }
    return true;
}

// Returns the number of words of the result, whose values are set.
static size_t compute(struct check *c, enum cn_op op, const struct cn_window *w, uint32_t samples)
{
    const float *x = c->tensors[DNN_X], *weight = c->tensors[DNN_WEIGHT], *y = c->tensors[DNN_Y];
    size_t plane_in = w->in[0] * w->in[1], plane_out = w->out[0] * w->out[1];
    size_t taps = w->kernel[0] * w->kernel[1];

    memset(c->wanted, 0, sizeof(c->wanted));
    for (size_t i = 0; i < samples * w->channels_out * plane_out; i++)
        for (size_t k = 0; k < w->channels_in * taps; k++) {
            size_t n = i / plane_out / w->channels_out, out = i / plane_out % w->channels_out;
            size_t row = i % plane_out / w->out[1] * w->stride[0] +
                         k % taps / w->kernel[1] * w->dilation[0] - w->pad[0];
            size_t col = i % plane_out % w->out[1] * w->stride[1] +
                         k % taps % w->kernel[1] * w->dilation[1] - w->pad[1];
            size_t at_x = (n * w->channels_in + k / taps) * plane_in + row * w->in[1] + col;
            size_t at_weight = out * w->channels_in * taps + k;

            if (row >= w->in[0] || col >= w->in[1])
                continue;
            if (op == CN_OP_CONV)
                c->wanted[i] += (double)x[at_x] * (double)weight[at_weight];
            else if (op == CN_OP_CONV_GRAD_INPUT)
                c->wanted[at_x] += (double)y[i] * (double)weight[at_weight];
            else
                c->wanted[at_weight] += (double)y[i] * (double)x[at_x];
        }
    return op == CN_OP_CONV              ? samples * w->channels_out * plane_out
           : op == CN_OP_CONV_GRAD_INPUT ? samples * w->channels_in * plane_in
                                         : w->channels_out * w->channels_in * taps;
}

static bool is_right(struct bench *b, struct check *c, const struct dnn_plan *plan, int role,
                     size_t words)
{
    const struct cuda_driver *driver = &b->cuda.library.driver;

    driver->fill_bytes(b->memory[role], 0xff, ROOM * sizeof(float), b->cuda.stream);
    if (time_plan(b, plan) < 0 ||
        driver->copy_out(c->found, b->memory[role], words * sizeof(float), b->cuda.stream) ||
        driver->stream_wait(b->cuda.stream))
        return false;
    for (size_t i = 0; i < words; i++)
        if (!(fabs((double)c->found[i] - c->wanted[i]) <= 1e-3 * (1 + fabs(c->wanted[i]))))
            return false;
    return true;
}

static void check_call(struct bench *b, struct check *c, enum cn_op op, const struct cn_window *w,
                       bool uneven)
{
    static const int results[] = {DNN_Y, DNN_X, DNN_WEIGHT};
    const struct cuda_driver *driver = &b->cuda.library.driver;
    size_t words = compute(c, op, w, b->samples);

    for (int role = 0; role < DNN_ROLES; role++)
        driver->copy_in(b->memory[role], c->tensors[role], ROOM * sizeof(float), b->cuda.stream);
    for (uint32_t number = 0; number < PROPOSALS; number++) {
        struct dnn_plan plan;
        struct count *count;
        bool right;

        if (dnn_plan_open_number(&b->cuda.library.dnn, b->cuda.dnn, op, w, b->samples, b->precision,
                                 WORKSPACE, number, &plan))
            break;
        count = &c->counts[op - CN_OP_CONV][plan.engine & (ENGINES - 1)][uneven];
        right = is_right(b, c, &plan, results[op - CN_OP_CONV], words);
        count->right += right;
        count->wrong += !right;
        if (!right)
            printf("wrong: op %d, engine %lld, %u to %u, in %ux%u, out %ux%u, kernel %ux%u, stride "
                   "%u,%u, pad %u,%u, dilation %u,%u\n",
                   op, (long long)plan.engine, w->channels_in, w->channels_out, w->in[0], w->in[1],
                   w->out[0], w->out[1], w->kernel[0], w->kernel[1], w->stride[0], w->stride[1],
                   w->pad[0], w->pad[1], w->dilation[0], w->dilation[1]);
        dnn_plan_close(&b->cuda.library.dnn, &plan);
    }
}

static int check_results(struct bench *b, unsigned windows)
{
    static struct check c;

    for (int role = 0; role < DNN_ROLES; role++)
        for (size_t i = 0; i < ROOM; i++)
            c.tensors[role][i] = (float)pick(0, 200) / 100 - 1;
    while (windows > 0) {
        struct cn_window w;
        bool uneven;

        b->samples = pick(1, 5);
        if (!random_window(&w, &uneven))
            continue;
        windows--;
        for (enum cn_op op = CN_OP_CONV; op <= CN_OP_CONV_GRAD_WEIGHT; op++)
            check_call(b, &c, op, &w, uneven);
    }
    for (int op = 0; op < 3; op++)
        for (int engine = 0; engine < ENGINES; engine++) {
            const struct count *even = c.counts[op][engine], *uneven = even + 1;

            if (even->right + even->wrong + uneven->right + uneven->wrong)
                printf("op %d, engine %d: %u of %u wrong; uneven padding: %u of %u wrong\n",
                       op + CN_OP_CONV, engine, even->wrong, even->right + even->wrong,
                       uneven->wrong, uneven->right + uneven->wrong);
        }
    return 0;
}

int main(int argc, char **arguments)
{
    bool check = argc > 2 && !strcmp(arguments[1], "check");
    static struct bench b;
    struct cuda_library library;
    struct cn_compute_config config = {.wanted = true};
    uint32_t size = argc > 2 ? (uint32_t)atoi(arguments[2]) : 0;
    size_t bytes;

    if (argc < 3)
        return 64;
    b.samples = (uint32_t)atoi(arguments[1]);
    b.precision = argc > 3 ? (enum cn_precision)atoi(arguments[3]) : CN_PRECISION_FLOAT32;
    config.precision = b.precision;
    if (cuda_library_open(&library, CN_LOG_WARN) || cuda_device_open(&b.cuda, &library, &config) ||
        !b.cuda.dnn)
        return 77;
    size = check ? 64 : size;
    b.samples = check ? 1 : b.samples;
    bytes = (size_t)b.samples * 64 * size * size * sizeof(float) / 2;
    bytes = bytes < (64u << 20) ? 64u << 20 : bytes;
    for (int role = 0; role < DNN_ROLES; role++)
        if (b.cuda.library.driver.allocate(&b.memory[role], bytes))
            return 1;
    if (b.cuda.library.driver.allocate(&b.workspace, WORKSPACE + 256))
        return 1;
    if (check)
        return check_results(&b, (unsigned)atoi(arguments[2]));
    bench_model(&b, size);
    printf("sum of the first proposals %.3f ms, of the best %.3f ms\n", b.first, b.best);
    return 0;
}
