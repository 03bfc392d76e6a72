// node_bench.c - "cairn-node bench": how fast this board trains the profile's model.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/command.h"
#include "runtime/engine/onnx_file.h"
#include "runtime/engine/trainer.h"
#include "runtime/port/platform.h"

#define WARM_UP 5
#define STEPS 200
#define TIME_LIMIT_US 10000000

static const char help[] = "Usage: cairn-node bench [--json] PROFILE\n"
                           "\n"
                           "Times training steps of the profile's model on synthetic samples: "
                           "median and best step, samples a\n"
                           "second, planned and resident memory. Touches no state.\n";

struct figures {
    double open_ms, median_ms, best_ms;
    uint64_t planned, resident;
    uint32_t batch, threads;
    size_t parameters;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static cn_err make_batch(const struct cn_trainer *trainer, uint32_t count, struct cn_batch *batch)
{
    struct cn_sample_shape shape;
    size_t elements = 1;
    cn_err err;

    cn_trainer_sample_shape(trainer, &shape);
    for (uint32_t i = 0; i < shape.rank; i++)
        elements *= shape.dims[i];
    err = cn_batch_init(&shape, count, batch);
    if (err)
        return err;
    batch->count = count;
    for (size_t i = 0; i < count * elements; i++)
        batch->inputs[i] = (float)(i * 2654435761u % 1000) / 1000;
    for (size_t i = 0; i < count * shape.rows; i++)
        batch->labels[i] = (int32_t)(i % shape.outputs);
    return CN_OK;
}

static cn_err one_step(struct cn_trainer *trainer, const struct cn_batch *batch)
{
    struct cn_metrics metrics = {0};
    cn_err err;

    err = cn_trainer_accumulate(trainer, batch, &metrics);
    if (err)
        return err;
    return cn_trainer_apply_weighted(trainer, batch->count, metrics.weight);
}

static cn_err time_steps(struct cn_trainer *trainer, const struct cn_batch *batch,
                         struct figures *figures)
{
    static double times[STEPS];
    uint64_t begun = cn_platform_now_us();
    size_t count = 0;
    cn_err err = CN_OK;

    for (int i = 0; i < WARM_UP && !err; i++)
        err = one_step(trainer, batch);
    while (!err && count < STEPS && cn_platform_now_us() - begun < TIME_LIMIT_US) {
        uint64_t from = cn_platform_now_us();

        err = one_step(trainer, batch);
        times[count++] = (double)(cn_platform_now_us() - from) / 1000;
    }
    if (err)
        return err;
    qsort(times, count, sizeof(times[0]), compare);
    figures->median_ms = times[count / 2];
    figures->best_ms = times[0];
    return CN_OK;
}

static cn_err measure(const struct cn_compute_ops *compute, const struct cn_settings *settings,
                      const struct cn_onnx_file *model, struct cn_diag *diag,
                      struct figures *figures)
{
    struct cn_trainer_config config = {
        .compute = compute,
        .threads = settings->threads ? settings->threads : cn_platform_cpu_count(),
        .precision = settings->precision,
        .batch = settings->job.batch,
        .loss = settings->job.loss,
        .rules = &settings->job.rules,
        .steps = (uint64_t)settings->job.rounds * settings->job.local_steps,
        .learning_rate = 1e-6f, // synthetic samples: the weights should stay near where they are
        .memory_limit = settings->memory_limit,
    };
    struct cn_trainer *trainer = NULL;
    struct cn_onnx *onnx = NULL;
    struct cn_batch batch = {0};
    uint64_t begun = cn_platform_now_us();
    cn_err err;

    err = cn_onnx_open(model->data, model->size, diag, &onnx);
    if (!err)
        err = cn_trainer_open(onnx, &config, diag, &trainer);
    if (err)
        goto close;
    figures->open_ms = (double)(cn_platform_now_us() - begun) / 1000;
    figures->planned = cn_trainer_memory(trainer);
    figures->parameters = cn_trainer_layout(trainer)->total;
    figures->batch = config.batch;
    figures->threads = config.threads;
    err = make_batch(trainer, config.batch, &batch);
    if (!err)
        err = time_steps(trainer, &batch, figures);
    figures->resident = cn_platform_peak_memory();

close:
    cn_batch_deinit(&batch);
    cn_trainer_close(trainer);
    cn_onnx_close(onnx);
    return err;
}

static void print_figures(const struct figures *f, bool json)
{
    double rate = f->batch * 1000.0 / f->median_ms;

    if (json) {
        printf("{\"parameters\":%zu,\"batch\":%u,\"threads\":%u,\"step_ms_median\":%.4f,"
               "\"step_ms_best\":%.4f,\"samples_per_second\":%.0f,\"open_ms\":%.3f,"
               "\"planned_bytes\":%llu,\"peak_resident_bytes\":%llu}\n",
               f->parameters, f->batch, f->threads, f->median_ms, f->best_ms, rate, f->open_ms,
               (unsigned long long)f->planned, (unsigned long long)f->resident);
        return;
    }
    printf("parameters      %zu\n", f->parameters);
    printf("batch, threads  %u, %u\n", f->batch, f->threads);
    printf("step            %.3f ms median, %.3f ms best\n", f->median_ms, f->best_ms);
    printf("samples         %.0f/s\n", rate);
    printf("load and plan   %.2f ms\n", f->open_ms);
    printf("memory          %.2f MiB planned, %.2f MiB peak resident\n",
           (double)f->planned / 1048576, (double)f->resident / 1048576);
}

static int bench(const struct cn_ports *ports, const struct cn_settings *settings, bool json)
{
    const struct cn_compute_ops *compute = cn_command_compute(ports, settings->device);
    static struct cn_diag diag;
    struct figures figures = {0};
    struct cn_onnx_file model;
    cn_err err;

    if (!compute)
        return CN_EXIT_FAILED;
    cn_diag_init(&diag);
    err = cn_onnx_file_open(settings->model, &diag, &model);
    if (err) {
        cn_command_print_diag(&diag);
        return CN_EXIT_FAILED;
    }
    err = measure(compute, settings, &model, &diag, &figures);
    cn_onnx_file_close(&model);
    cn_command_print_diag(&diag);
    if (err) {
        if (diag.count == 0)
            fprintf(stderr, "error: %s\n", cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    print_figures(&figures, json);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_profile *profile;
    bool json;
    int code;

    code = cn_command_take_profile(argc, argv, help, CN_PROFILE_TRAIN, &json, &profile);
    if (code)
        return code;
    code = bench(ports, cn_profile_settings(profile), json);
    cn_profile_free(profile);
    return code;
}

const struct cn_command cn_command_bench = {
    .name = "bench",
    .summary = "time the training steps of a profile's model",
    .help = help,
    .run = run,
};
