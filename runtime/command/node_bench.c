// node_bench.c - "cairn-node bench": how fast this board trains the profile's model.
#include <stdio.h>

#include "runtime/command/command.h"
#include "runtime/command/train_speed.h"
#include "runtime/engine/onnx_file.h"
#include "runtime/port/platform.h"

#define TIME_LIMIT_US 10000000

static const char help[] = "Usage: cairn-node bench [--json] PROFILE\n"
                           "\n"
                           "Times training steps of the profile's model on synthetic samples: "
                           "median and best step, samples a\n"
                           "second, planned and resident memory. Touches no state.\n";

static void print_speed(const struct cn_train_speed *s, const struct cn_trainer_config *config,
                        bool json)
{
    uint64_t resident = cn_platform_peak_memory();

    if (json) {
        printf("{\"parameters\":%zu,\"batch\":%u,\"threads\":%u,\"step_ms_median\":%.4f,"
               "\"step_ms_best\":%.4f,\"samples_per_second\":%.0f,\"open_ms\":%.3f,"
               "\"planned_bytes\":%llu,\"peak_resident_bytes\":%llu}\n",
               s->parameters, config->batch, config->threads, s->median_ms, s->best_ms,
               s->samples_per_s, s->open_ms, (unsigned long long)s->planned,
               (unsigned long long)resident);
        return;
    }
    printf("parameters      %zu\n", s->parameters);
    printf("batch, threads  %u, %u\n", config->batch, config->threads);
    printf("step            %.3f ms median, %.3f ms best\n", s->median_ms, s->best_ms);
    printf("samples         %.0f/s\n", s->samples_per_s);
    printf("load and plan   %.2f ms\n", s->open_ms);
    printf("memory          %.2f MiB planned, %.2f MiB peak resident\n",
           (double)s->planned / 1048576, (double)resident / 1048576);
}

static int bench(const struct cn_ports *ports, const struct cn_settings *settings, bool json)
{
    const struct cn_compute_ops *compute = cn_command_compute(ports, settings->device);
    static struct cn_diag diag;
    struct cn_train_speed speed;
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
    err = cn_train_speed(&config, model.data, model.size, TIME_LIMIT_US, &diag, &speed);
    cn_onnx_file_close(&model);
    cn_command_print_diag(&diag);
    if (err) {
        if (diag.count == 0)
            fprintf(stderr, "error: %s\n", cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    print_speed(&speed, &config, json);
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
