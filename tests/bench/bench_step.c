// Times a training step. usage: bench_step MODEL.onnx BATCH THREADS [SECONDS [mse]]
//
// Prints one JSON line: the 10th percentile and the median of accumulate + apply in microseconds,
// the median of the processor time of all threads, when the trainer was open and when the first
// step ended (CLOCK_MONOTONIC, and the processor time until then; microseconds), planned and peak
// resident memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/port/platform.h"

#define STEPS_MAX 100000

static double clock_us(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static double now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

// Inputs in [-1, 1) and labels in turn: what they are does not change the time.
static void fill_batch(struct cn_batch *batch, const struct cn_sample_shape *shape, uint32_t count)
{
    size_t words = 1;

    for (uint32_t d = 0; d < shape->rank; d++)
        words *= shape->dims[d];
    if (cn_batch_init(shape, count, batch))
        exit(1);
    batch->count = count;
    for (size_t i = 0; i < words * count && !shape->integers; i++)
        batch->inputs[i] = (float)(i * 2654435761u >> 8 & 0xffff) / 32768.0f - 1;
    for (size_t i = 0; i < words * count && shape->integers; i++) {
        int32_t token = (int32_t)(i * 2654435761u >> 8 & 31);

        memcpy(&batch->inputs[i], &token, sizeof(token));
    }
    for (size_t i = 0; i < count * shape->rows; i++)
        batch->labels[i] = (int32_t)(i % shape->outputs);
    for (size_t i = 0; shape->loss != CN_LOSS_CROSS_ENTROPY && i < count * shape->outputs; i++)
        batch->targets[i] = (float)(i % 7) / 7;
}

// A moment, in microseconds of the clock and of this process's processor time.
struct moment {
    double at, used;
};

static struct moment moment_now(void)
{
    return (struct moment){now_us(), clock_us(CLOCK_PROCESS_CPUTIME_ID)};
}

static size_t measure(struct cn_trainer *trainer, const struct cn_batch *batch, double seconds,
                      double *times, double *used, struct moment *first)
{
    double end = now_us() + seconds * 1e6;
    size_t count = 0;

    while (count < STEPS_MAX && (now_us() < end || count < 10)) {
        struct cn_metrics metrics = {0};
        double used_before = clock_us(CLOCK_PROCESS_CPUTIME_ID);
        double start = now_us();

        if (cn_trainer_accumulate(trainer, batch, &metrics) ||
            cn_trainer_apply(trainer, batch->count))
            exit(1);
        times[count] = now_us() - start;
        used[count++] = clock_us(CLOCK_PROCESS_CPUTIME_ID) - used_before;
        if (count == 1)
            *first = moment_now();
    }
    return count;
}

int main(int argument_count, char **arguments)
{
    static double times[STEPS_MAX], used[STEPS_MAX];
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .learning_rate = 0.001f,
                                       .momentum = 0.9f};
    struct cn_sample_shape shape;
    struct cn_batch batch = {0};
    struct cn_trainer *trainer;
    struct cn_onnx *onnx;
    struct cn_diag diag;
    struct cn_onnx_file file;
    struct moment opened, first = {0};
    size_t count;

    if (argument_count < 4) {
        fprintf(stderr, "usage: %s MODEL.onnx BATCH THREADS [SECONDS]\n", arguments[0]);
        return 2;
    }
    cn_diag_init(&diag);
    config.batch = (uint32_t)strtoul(arguments[2], NULL, 10);
    config.threads = (uint32_t)strtoul(arguments[3], NULL, 10);
    if (argument_count > 5 && !strcmp(arguments[5], "mse"))
        config.loss = CN_LOSS_MSE;
    if (cn_onnx_file_open(arguments[1], &diag, &file) ||
        cn_onnx_open(file.data, file.size, &diag, &onnx) ||
        cn_trainer_open(onnx, &config, &diag, &trainer)) {
        fprintf(stderr, "%s: %s\n", arguments[1], cn_diag_first(&diag));
        return 1;
    }
    opened = moment_now();
    cn_onnx_file_forget(&file);
    cn_trainer_sample_shape(trainer, &shape);
    fill_batch(&batch, &shape, config.batch);
    count = measure(trainer, &batch, argument_count > 4 ? strtod(arguments[4], NULL) : 2, times,
                    used, &first);
    qsort(times, count, sizeof(*times), by_value);
    qsort(used, count, sizeof(*used), by_value);
    printf(
        "{\"model\": \"%s\", \"batch\": %u, \"threads\": %u, \"steps\": %zu, \"p10_us\": %.1f, "
        "\"median_us\": %.1f, \"cpu_us\": %.1f, \"opened_at_us\": %.0f, \"opened_cpu_us\": %.1f, "
        "\"first_step_at_us\": %.0f, \"first_step_cpu_us\": %.1f, \"planned_bytes\": %llu, "
        "\"peak_resident_bytes\": %llu}\n",
        arguments[1], config.batch, config.threads, count, times[count / 10], times[count / 2],
        used[count / 2], opened.at, opened.used, first.at, first.used,
        (unsigned long long)cn_trainer_memory(trainer),
        (unsigned long long)cn_platform_peak_memory());
    cn_trainer_close(trainer);
    cn_onnx_close(onnx);
    cn_batch_deinit(&batch);
    cn_onnx_file_close(&file);
    return 0;
}
