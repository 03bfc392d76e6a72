// Times single calls of the CPU port. usage: bench_op [PART]   only rows whose name contains PART
//
// Prints GF/s of one thread for products, and for convolutions of a batch of 32: forward, gradient
// for the input, gradient for the weights. The best of many runs.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ports/cpu/compute_cpu.h"

#define SAMPLES 32
#define RUN_SECONDS 0.15

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Seconds of the best run of one call whose operands have that many words; those of the first and
// of the last are all samples' unless it is the gradient of a weight, which the first two are.
static double time_call(struct cn_call call, const size_t *words, bool weight)
{
    const struct cn_compute_ops *ops = &cn_compute_cpu;
    struct cn_compute_config config = {.threads = 1};
    struct cn_hyper hyper = {.samples = SAMPLES, .first = true};
    struct cn_compute_sizes sizes = {0};
    struct cn_compute_program *program;
    struct cn_compute *device;
    double best = 1e9, end;
    size_t at = 0, workspace;
    struct cn_operand *operands[] = {&call.in[0], &call.in[1], &call.out[0]};

    for (int i = 0; i < 3; i++) {
        *operands[i] = (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS, .offset = at};
        if (i == 0 || i == (weight ? 1 : 2))
            operands[i]->stride = words[i] / SAMPLES;
        at += (words[i] + 15) / 16 * 16;
    }
    if (ops->open(&config, &device) || ops->query(device, &call, SAMPLES, &workspace))
        exit(1);
    call.workspace = (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS, .offset = at};
    sizes.words[CN_ARENA_ACTIVATIONS] = at + workspace;
    if (ops->reserve(device, &sizes, SAMPLES) || ops->prepare(device, &call, 1, &program))
        exit(1);
    end = now() + RUN_SECONDS;
    while (now() < end) {
        double start = now();

        if (ops->run(device, program, &hyper))
            exit(1);
        if (now() - start < best)
            best = now() - start;
    }
    ops->release(device, program);
    ops->close(device);
    return best;
}

static void bench_conv(const char *part, uint32_t in, uint32_t out, uint32_t groups, uint32_t size,
                       uint32_t kernel, uint32_t stride)
{
    static const enum cn_op ops[] = {CN_OP_CONV, CN_OP_CONV_GRAD_INPUT, CN_OP_CONV_GRAD_WEIGHT};
    uint32_t pad = kernel / 2, result = (size + 2 * pad - kernel) / stride + 1;
    struct cn_call call = {.window = {.channels_in = in,
                                      .channels_out = out,
                                      .groups = groups,
                                      .in = {size, size},
                                      .out = {result, result},
                                      .kernel = {kernel, kernel},
                                      .stride = {stride, stride},
                                      .pad = {pad, pad},
                                      .dilation = {1, 1}}};
    size_t x = (size_t)SAMPLES * in * size * size, y = (size_t)SAMPLES * out * result * result;
    size_t weight = (size_t)in / groups * out * kernel * kernel;
    const size_t words[3][3] = {{x, weight, y}, {y, weight, x}, {y, x, weight}};
    double work = 2.0 * (double)y * in / groups * kernel * kernel;
    char name[96];

    snprintf(name, sizeof(name), "conv %u->%u/%u %ux%u k%u s%u", in, out, groups, size, size,
             kernel, stride);
    if (!strstr(name, part))
        return;
    printf("%-32s", name);
    for (int i = 0; i < 3; i++) {
        call.op = ops[i];
        printf(" %7.1f", work / time_call(call, words[i], i == 2) * 1e-9);
    }
    printf("\n");
}

static void bench_matmul(const char *part, size_t rows, size_t inner, size_t cols)
{
    struct cn_call call = {
        .op = CN_OP_MATMUL,
        .matmul = {.rows = rows, .inner = inner, .cols = cols, .transpose_b = true, .alpha = 1}};
    const size_t forward[] = {SAMPLES * rows * inner, inner * cols, SAMPLES * rows * cols};
    const size_t input[] = {SAMPLES * rows * cols, inner * cols, SAMPLES * rows * inner};
    const size_t weight[] = {SAMPLES * rows * cols, SAMPLES * rows * inner, cols * inner};
    double work = 2.0 * SAMPLES * (double)rows * (double)inner * (double)cols * 1e-9;
    char name[96];

    snprintf(name, sizeof(name), "matmul %zux%zux%zu", rows * SAMPLES, inner, cols);
    if (!strstr(name, part))
        return;
    printf("%-32s %7.1f", name, work / time_call(call, forward, false));
    call.matmul = (struct cn_matmul){.rows = rows, .inner = cols, .cols = inner, .alpha = 1};
    printf(" %7.1f", work / time_call(call, input, false));
    call.matmul = (struct cn_matmul){.rows = cols,
                                     .inner = rows,
                                     .cols = inner,
                                     .transpose_a = true,
                                     .inner_batched = true,
                                     .alpha = 1};
    printf(" %7.1f\n", work / time_call(call, weight, true));
}

int main(int argument_count, char **arguments)
{
    const char *part = argument_count > 1 ? arguments[1] : "";

    printf("%-32s %7s %7s %7s\n", "GF/s, 1 thread, batch 32", "forward", "input", "weight");
    bench_matmul(part, 1, 784, 128);
    bench_matmul(part, 1, 512, 64);
    bench_matmul(part, 1, 64, 10);
    bench_matmul(part, 128, 128, 384);
    bench_matmul(part, 128, 128, 512);
    bench_matmul(part, 64, 512, 512);
    bench_conv(part, 1, 16, 1, 8, 3, 1);
    bench_conv(part, 16, 32, 1, 8, 3, 1);
    bench_conv(part, 3, 16, 1, 32, 3, 1);
    bench_conv(part, 6, 16, 1, 14, 5, 1);
    bench_conv(part, 16, 16, 1, 32, 3, 1);
    bench_conv(part, 32, 32, 1, 16, 3, 1);
    bench_conv(part, 64, 64, 1, 8, 3, 1);
    bench_conv(part, 3, 64, 1, 64, 7, 2);
    bench_conv(part, 64, 64, 1, 16, 3, 1);
    bench_conv(part, 64, 128, 1, 16, 3, 2);
    bench_conv(part, 128, 128, 1, 8, 3, 1);
    bench_conv(part, 256, 256, 1, 4, 3, 1);
    bench_conv(part, 512, 512, 1, 2, 3, 1);
    bench_conv(part, 64, 256, 1, 16, 1, 1);
    bench_conv(part, 512, 128, 1, 8, 1, 1);
    bench_conv(part, 512, 1024, 1, 8, 1, 2);
    bench_conv(part, 1024, 256, 1, 4, 1, 1);
    bench_conv(part, 512, 2048, 1, 2, 1, 1);
    bench_conv(part, 96, 96, 96, 32, 3, 1);
    bench_conv(part, 96, 96, 96, 32, 3, 2);
    bench_conv(part, 192, 192, 192, 8, 3, 1);
    return 0;
}
