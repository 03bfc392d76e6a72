// node_bench.c - "cairn-node bench": how fast this board trains the profile's model.
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "runtime/command/bench_link.h"
#include "runtime/command/bench_predict.h"
#include "runtime/command/command.h"
#include "runtime/command/train_speed.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"

#define TIME_LIMIT_US 10000000

static const char help[] =
    "Usage: cairn-node bench [--json] PROFILE\n"
    "       cairn-node bench --link [--json] [--rate RATE] [--rtt TIME]\n"
    "                        [--loss SHARE] PROFILE\n"
    "       cairn-node bench --predict [--json] PROFILE\n"
    "\n"
    "Times training steps of the profile's model on synthetic samples: median and\n"
    "best step, samples a second, planned and resident memory. Touches no state.\n"
    "\n"
    "  --link        measures the link to the aggregator instead (a version down, up\n"
    "                to 256 KiB up that it drops) and prints for each rule of the\n"
    "                codec the bytes and seconds of an update, the share of its\n"
    "                energy that is kept, and what mode auto would choose and why\n"
    "  --rate RATE   the link is not measured but as said; the profile needs a job\n"
    "                then\n"
    "  --rtt TIME    round trip, such as \"200 ms\"\n"
    "  --loss SHARE  such as \"5 %\"\n"
    "  --predict     trains nothing: counts the calls, the arithmetic and the memory\n"
    "                traffic of a step (one micro-batch and the optimizer) and says\n"
    "                what each of some GPUs needs for it at least, by its peak rates\n"
    "  --json        one JSON object; with --link one a line\n";

static void print_speed(const struct cn_train_speed *s, const struct cn_trainer_config *config,
                        bool json)
{
    uint64_t resident = cn_platform_peak_memory();

    if (json) {
        printf("{\"parameters\":%zu,\"batch\":%u,\"threads\":%u,\"step_ms_median\":%.4f,"
               "\"step_ms_best\":%.4f,\"samples_per_second\":%.0f,\"open_ms\":%.3f,"
               "\"planned_bytes\":%" PRIu64 ",\"peak_resident_bytes\":%" PRIu64 "}\n",
               s->parameters, config->batch, config->threads, s->median_ms, s->best_ms,
               s->samples_per_s, s->open_ms, s->planned, resident);
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
    const struct cn_compute_ops *compute = cn_command_compute(ports, settings, NULL);
    static struct cn_diag diag;
    struct cn_train_speed speed;
    struct cn_trainer_config config = {
        .compute = compute,
        .device = cn_gpus_first(settings),
        .threads = settings->threads ? settings->threads : cn_platform_cpu_count(),
        .precision = settings->precision,
        .batch = settings->job.batch,
        .loss = settings->job.loss,
        .rules = &settings->job.rules,
        .steps = cn_job_schedule_steps(&settings->job),
        .learning_rate = 1e-6f, // synthetic samples: the weights should stay near where they are
        .memory_limit = settings->memory_limit,
    };
    struct cn_onnx_file model;
    cn_err err;

    if (!compute)
        return CN_EXIT_FAILED;
    cn_diag_init(&diag);
    err = cn_onnx_file_open(settings->model, &diag, &model);
    if (!err) {
        err = cn_train_speed(&config, &model, TIME_LIMIT_US, &diag, &speed);
        cn_onnx_file_close(&model);
    }
    cn_command_print_about(settings->model, err, &diag);
    if (err)
        return CN_EXIT_FAILED;
    print_speed(&speed, &config, json);
    return CN_EXIT_DONE;
}

static int bench_profile(const struct cn_ports *ports, const char *path, bool json, bool predict)
{
    struct cn_profile *profile = cn_command_load_profile(path, CN_PROFILE_TRAIN);
    int code;

    if (!profile)
        return CN_EXIT_PROFILE;
    code = (predict ? cn_bench_predict : bench)(ports, cn_profile_settings(profile), json);
    cn_profile_free(profile);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'},
        {"link", no_argument, NULL, 'k'},
        {"rate", required_argument, NULL, 'r'},
        {"rtt", required_argument, NULL, 't'},
        {"loss", required_argument, NULL, 'o'},
        {"predict", no_argument, NULL, 'p'},
        {0},
    };
    struct cn_bench_link wanted = {0};
    bool link = false, predict = false;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'j')
            wanted.json = true;
        else if (option == 'k')
            link = true;
        else if (option == 'p')
            predict = true;
        else if (option == 'r')
            wanted.rate = optarg;
        else if (option == 't')
            wanted.rtt = optarg;
        else if (option == 'o')
            wanted.loss = optarg;
        else
            return CN_EXIT_USAGE;
    }
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    wanted.profile = argv[optind];
    if (!link && (wanted.rate || wanted.rtt || wanted.loss)) {
        fprintf(stderr, "error: --rate, --rtt and --loss are of a link; expected --link\n");
        return CN_EXIT_USAGE;
    }
    if (link && predict) {
        fprintf(stderr, "error: --predict is of training steps, --link of a link; expected one\n");
        return CN_EXIT_USAGE;
    }
    if ((wanted.rtt || wanted.loss) && !wanted.rate) {
        fprintf(stderr, "error: --rtt and --loss need --rate\n");
        return CN_EXIT_USAGE;
    }
    return link ? cn_bench_link(ports, &wanted)
                : bench_profile(ports, wanted.profile, wanted.json, predict);
}

const struct cn_command cn_command_bench = {
    .name = "bench",
    .summary = "time training steps; or the link, and what to send over it",
    .help = help,
    .run = run,
};
