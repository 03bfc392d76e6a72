// node_train.c - "cairn-node train": trains alone.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/whole_number.h"
#include "runtime/command/check_contents.h"
#include "runtime/command/check_memory.h"
#include "runtime/command/command.h"
#include "runtime/command/terminal/screen.h"
#include "runtime/command/terminal/wrap.h"
#include "runtime/command/train_files.h"
#include "runtime/command/train_history.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/node/alone.h"

#define LINE_MS 250 // shortest time between two drawings of the progress line

static const char help[] =
    "Usage: cairn-node train [OPTIONS] PROFILE\n"
    "\n"
    "Trains the profile's job on this board, without any network or keys. Goes on\n"
    "where it stopped. The model is in STATE/model.current.onnx, for inference,\n"
    "after each round and in STATE/model.safetensors at the end. Where the job holds\n"
    "samples out, the model of the round that measured best is in\n"
    "STATE/model.best.onnx. When a value of the job, or the model, is another one\n"
    "than what is stored was trained with, it says which and ends; the count of\n"
    "rounds and stop rules may change.\n"
    "\n"
    "  --anew             start over; what was trained is replaced\n"
    "  --from FILE.onnx   start over with the weights of this file, for the model of\n"
    "                     the profile; without --from the run then goes on where it\n"
    "                     was stopped\n"
    "  --steps N          stop after step N of the run; without it, after the\n"
    "                     profile's rounds\n"
    "  --seed S           instead of the profile's\n"
    "  --order ORDER      shuffled (default), or sequential: file order, over and\n"
    "                     over\n"
    "  --threads T        instead of the profile's\n"
    "  --device DEVICE    cpu, cuda or auto, instead of the profile's\n"
    "  --trace FILE.csv   step, loss, learning rate and milliseconds of each step\n"
    "  --save FILE        the weights at the end, as .onnx (for inference) or\n"
    "                     .safetensors\n"
    "  --training         --save FILE.onnx in the form that the model's file has, to\n"
    "                     train on\n"
    "  --ops FILE.json    times of a step's operations, for chrome://tracing\n"
    "  --timeline FILE    what was done when in each step, likewise\n"
    "  --report FILE      the rounds so far, at the end, as .html (a page), .csv or\n"
    "                     .json; from STATE/history.csv, so with those before a stop\n"
    "  --json             one JSON object for each round\n"
    "  --sysroot DIR      read sys/, proc/ and etc/ of the board below DIR: in a\n"
    "                     container, or a record\n"
    "  --log-level LEVEL  error, warn, info or debug\n"
    "  --log-format F     text, or json: one object a line\n";

struct options {
    const char *profile, *from, *trace, *save, *ops, *timeline, *sysroot, *report;
    uint64_t steps, seed;
    uint32_t threads;
    enum cn_device device;
    bool has_seed, has_device, sequential, json, anew;
    enum cn_export_form form;
};

struct printer {
    const struct options *options;
    uint32_t rounds;
    uint32_t steps; // of a round
    // The progress line: clock of its last drawing; clock and number of the first step.
    uint64_t drawn_ms, begun_ms, first_step;
    bool live;  // whether standard output can show such a line
    bool drawn; // whether standard output shows one now
    FILE *trace;
    struct cn_train_history history;
    struct cn_diag *diag;
};

static void json_number(const char *name, double value)
{
    if (isfinite(value))
        printf(",\"%s\":%.6g", name, value);
}

static void print_json(const struct cn_alone_report *report)
{
    const struct cn_scores *scores = &report->scores;

    printf("{\"round\":%u,\"train_loss\":%.6g,\"step_ms\":%.3f", report->round, report->train_loss,
           report->step_ms);
    json_number("held_out_loss", scores->loss);
    json_number("held_out_accuracy", scores->accuracy);
    json_number("top5", scores->top5);
    json_number("f1", scores->f1);
    json_number("mae", scores->mae);
    json_number("perplexity", scores->perplexity);
    if (report->energy_j > 0)
        json_number("energy_j", report->energy_j);
    printf("}\n");
}

// Appends a measure to a line, if it is known.
static void line_number(FILE *line, const char *name, int decimals, double value)
{
    if (isfinite(value))
        fprintf(line, "  %s %.*f", name, decimals, value);
}

static void print_line(const struct cn_alone_report *report, uint32_t rounds)
{
    const struct cn_scores *scores = &report->scores;
    char text[512];
    FILE *line = fmemopen(text, sizeof(text), "w");

    if (!line)
        return;
    fprintf(line, "round %u/%u  train loss %.4f", report->round, rounds, report->train_loss);
    line_number(line, "held-out loss", 4, scores->loss);
    line_number(line, "perplexity", 3, scores->perplexity);
    line_number(line, "MAE", 4, scores->mae);
    line_number(line, "accuracy", 3, scores->accuracy);
    line_number(line, "top-5", 3, scores->top5);
    line_number(line, "F1", 3, scores->f1);
    fprintf(line, "  %.2f ms/step", report->step_ms);
    if (report->energy_j > 0)
        fprintf(line, "  %.1f J", report->energy_j);
    fclose(line);
    cn_wrap_print(text, 4);
}

static void print_round(void *context, const struct cn_alone_report *report)
{
    struct printer *printer = context;

    if (printer->drawn)
        cn_screen_clear(stdout);
    printer->drawn = false;
    cn_train_history_add(&printer->history, report);
    if (printer->options->json)
        print_json(report);
    else
        print_line(report, printer->rounds);
    fflush(stdout);
}

// Draws the progress of the run and the time that is left. A stop rule may end the run sooner.
static void draw_step(struct printer *printer, uint64_t step)
{
    uint64_t now_ms = cn_platform_now_ms(), end = (uint64_t)printer->rounds * printer->steps;
    char line[160], left[CN_SCREEN_LEFT_SIZE];

    if (printer->begun_ms == 0) {
        printer->begun_ms = now_ms;
        printer->first_step = step;
    }
    if (printer->options->json || now_ms - printer->drawn_ms < LINE_MS)
        return;
    if (printer->options->steps && printer->options->steps < end)
        end = printer->options->steps;
    printer->drawn_ms = now_ms;
    cn_screen_time_left(now_ms - printer->begun_ms, step - printer->first_step,
                        end > printer->first_step ? end - printer->first_step : 0, left);
    snprintf(line, sizeof(line), "round %" PRIu64 " of %u, step %" PRIu64 " of %u%s%s",
             (step - 1) / printer->steps + 1, printer->rounds, (step - 1) % printer->steps + 1,
             printer->steps, left[0] ? "; " : "", left);
    cn_screen_draw(stdout, line);
    printer->drawn = true;
}

static void trace_step(void *context, const struct cn_alone_step *step)
{
    struct printer *printer = context;

    if (printer->trace)
        fprintf(printer->trace, "%" PRIu64 ",%.9g,%.9g,%.4f\n", step->step, step->loss, step->rate,
                step->ms);
    if (printer->live)
        draw_step(printer, step->step);
}

static void begin_training(void *context, const struct cn_session *session)
{
    const struct cn_checkpoint *held = cn_session_held(session);
    const struct printer *printer = context;

    if (held->version == 0 && held->phase != CN_PHASE_TRAIN)
        cn_train_history_begin(&printer->history);
    cn_check_print_trained(session);
}

static cn_err write_files(void *context, struct cn_session *session)
{
    const struct printer *printer = context;
    const struct options *options = printer->options;
    cn_err err = CN_OK;

    if (options->save)
        err = cn_train_files_save(session, options->save, options->form, printer->diag);
    if (!err && options->ops)
        err = cn_train_files_ops(session, options->ops, printer->diag);
    return err;
}

static void print_best(const struct cn_settings *settings, const struct cn_alone_best *best)
{
    bool accuracy = cn_job_metric(&settings->job) == CN_METRIC_ACCURACY;

    if (best->version && best->kept == best->version && isfinite(best->value))
        fprintf(stderr, "best: %s/%s, of round %u (held-out %s %.4g)\n", settings->state,
                CN_ALONE_BEST_FILE, best->version, accuracy ? "accuracy" : "loss",
                accuracy ? best->value : -best->value);
}

// Prints how training ended. diag has the known causes of err. Returns the exit code.
static int explain(cn_err err, const struct cn_settings *settings, const struct options *options,
                   const struct cn_alone_best *best, const struct cn_diag *diag)
{
    if (err == CN_OK || err == CN_ECANCELED)
        print_best(settings, best);
    if (err == CN_OK) {
        fprintf(stderr, "model: %s/model.current.onnx\n", settings->state);
        return CN_EXIT_DONE;
    }
    if (err == CN_ECANCELED) {
        fprintf(stderr, "stopped; the same command%s goes on from here\n",
                options->from || options->anew ? " without --from and --anew" : "");
        return CN_EXIT_INTERRUPTED;
    }
    cn_command_print_errors(diag);
    if (diag->count == 0 && err != CN_EDIVERGED) // the log has said that the loss diverged
        fprintf(stderr, "error: training failed: %s\n", cn_err_text(err));
    return CN_EXIT_FAILED;
}

static cn_err run_alone(struct cn_alone_config *config, struct printer *printer,
                        struct cn_diag *diag)
{
    const char *path = printer->options->trace;
    cn_err err;

    if (path) {
        printer->trace = fopen(path, "w");
        if (!printer->trace) {
            cn_diag_add(diag, "--trace %s: cannot be written: %s", path, strerror(errno));
            return CN_EIO;
        }
        fputs("step,loss,lr,ms\n", printer->trace);
    }
    err = cn_alone_run(config, diag);
    if (printer->trace && fclose(printer->trace) && !err) {
        cn_diag_add(diag, "--trace %s: is not complete", path);
        err = CN_EIO;
    }
    return err;
}

static cn_err open_from(const char *path, struct cn_diag *diag, struct cn_onnx_file *file,
                        struct cn_alone_config *config)
{
    cn_err err = cn_onnx_file_open(path, diag, file);

    if (err)
        fprintf(stderr, "error: --from %s\n", cn_diag_first(diag));
    config->from = file;
    return err;
}

static int train(const struct cn_ports *ports, const struct cn_settings *settings,
                 const struct options *options)
{
    static struct cn_diag diag;
    struct printer printer = {.options = options,
                              .rounds = settings->job.rounds,
                              .steps = settings->job.local_steps,
                              .live = cn_screen_is_live(stdout),
                              .history = {.settings = settings},
                              .diag = &diag};
    struct cn_alone_config config = {
        .settings = settings,
        .sysroot = options->sysroot ? options->sysroot : "",
        .report = print_round,
        .on_step = trace_step,
        .at_start = begin_training,
        .at_end = write_files,
        .context = &printer,
        .steps = options->steps,
        .sequential = options->sequential,
        .anew = options->anew,
        .trained = cn_train_history_exists(&printer.history),
    };
    struct cn_onnx_file model, from = {.data = NULL};
    struct cn_alone_best best = {0};
    cn_err err;
    int code;

    if (settings->job.metric > CN_METRIC_LOSS) { // after a restart no other one is known
        fprintf(stderr, "error: stop.metric: training alone compares by accuracy or loss\n");
        return CN_EXIT_PROFILE;
    }
    cn_diag_init(&diag);
    config.compute = cn_command_compute(ports, settings, NULL);
    if (!config.compute)
        return CN_EXIT_FAILED;
    err = cn_onnx_file_open(settings->model, &diag, &model);
    if (err) {
        fprintf(stderr, "error: model %s\n", cn_diag_first(&diag));
        return CN_EXIT_FAILED;
    }
    config.model = &model;
    code = CN_EXIT_FAILED;
    if (!options->from || !open_from(options->from, &diag, &from, &config))
        code = cn_command_open_store(settings, &config.store);
    if (code) {
        cn_onnx_file_close(&model);
        cn_onnx_file_close(&from);
        return code;
    }
    config.stop = cn_command_catch_signals();
    config.best = &best;
    code = CN_EXIT_FAILED;
    if (cn_command_open_timeline(options->timeline, &config.timeline) == CN_OK)
        code = explain(run_alone(&config, &printer, &diag), settings, options, &best, &diag);
    cn_command_close_timeline(options->timeline, config.timeline);
    if (options->report && cn_train_history_write(&printer.history, options->report) && !code)
        code = CN_EXIT_FAILED;
    config.store->ops->close(config.store);
    cn_onnx_file_close(&model);
    cn_onnx_file_close(&from);
    return code;
}

// Reads a whole number from min to max. Prints an error and returns false for any other text.
static bool take_number(const char *name, const char *text, uint64_t min, uint64_t max,
                        uint64_t *number)
{
    if (cn_whole_number_read(text, min, max, number))
        return true;
    fprintf(stderr, "error: %s '%s' is not a whole number from %" PRIu64 " to %" PRIu64 "\n", name,
            text, min, max);
    return false;
}

// Returns the index of text among choices, which end with NULL. When text is none of them, prints
// an error with the choices and returns -1.
static int take_choice(const char *name, const char *text, const char *const *choices)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(text, choices[i]) == 0)
            return i;
    fprintf(stderr, "error: %s '%s' is not known; expected", name, text);
    for (int i = 0; choices[i]; i++)
        fprintf(stderr, "%s %s", i ? "," : "", choices[i]);
    fputc('\n', stderr);
    return -1;
}

static bool take_option(int option, struct options *options)
{
    static const char *const orders[] = {"shuffled", "sequential", NULL};
    static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
    uint64_t number = 0;
    int choice;

    switch (option) {
    case 'j':
        options->json = true;
        return true;
    case 'a':
        options->anew = true;
        return true;
    case 'm':
        options->from = optarg;
        return true;
    case 'n':
        return take_number("--steps", optarg, 1, UINT32_MAX, &options->steps);
    case 's':
        options->has_seed = true;
        return take_number("--seed", optarg, 0, (1ull << 53) - 1, &options->seed);
    case 't':
        if (!take_number("--threads", optarg, 1, 1024, &number))
            return false;
        options->threads = (uint32_t)number;
        return true;
    case 'o':
        choice = take_choice("--order", optarg, orders);
        options->sequential = choice == 1;
        return choice >= 0;
    case 'd':
        choice = take_choice("--device", optarg, devices);
        options->has_device = true;
        options->device = choice == 1   ? CN_DEVICE_CPU
                          : choice == 2 ? CN_DEVICE_CUDA
                                        : CN_DEVICE_AUTO;
        return choice >= 0;
    case 'c':
        options->trace = optarg;
        return true;
    case 'w':
        options->save = optarg;
        return cn_train_files_known(optarg);
    case 'f':
        options->form = CN_EXPORT_TRAINING;
        return true;
    case 'p':
        options->ops = optarg;
        return true;
    case 'l':
        options->timeline = optarg;
        return true;
    case 'h':
        options->report = optarg;
        return cn_train_history_check(optarg);
    case 'r':
        options->sysroot = optarg;
        return cn_command_is_sysroot(optarg);
    default:
        return false;
    }
}

static bool take_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'},         {"anew", no_argument, NULL, 'a'},
        {"from", required_argument, NULL, 'm'},   {"steps", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},   {"threads", required_argument, NULL, 't'},
        {"order", required_argument, NULL, 'o'},  {"device", required_argument, NULL, 'd'},
        {"trace", required_argument, NULL, 'c'},  {"save", required_argument, NULL, 'w'},
        {"ops", required_argument, NULL, 'p'},    {"timeline", required_argument, NULL, 'l'},
        {"report", required_argument, NULL, 'h'}, {"sysroot", required_argument, NULL, 'r'},
        {"training", no_argument, NULL, 'f'},     {0}};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!take_option(option, options))
            return false;
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return false;
    }
    options->profile = argv[optind];
    return true;
}

// Replaces the settings that the command line gives. Raises the rounds so that they reach --steps.
static void lay_over(const struct options *options, struct cn_settings *settings)
{
    uint32_t per_round = settings->job.local_steps;

    if (options->has_seed)
        settings->job.seed = options->seed;
    if (options->threads)
        settings->threads = options->threads;
    if (options->has_device)
        settings->device = options->device;
    if (options->steps > (uint64_t)settings->job.rounds * per_round)
        settings->job.rounds = (uint32_t)((options->steps + per_round - 1) / per_round);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct options options = {0};
    struct cn_settings *settings;
    struct cn_profile *profile;
    int code = CN_EXIT_FAILED;

    if (!take_options(argc, argv, &options))
        return CN_EXIT_USAGE;
    profile = cn_command_load_profile(options.profile, CN_PROFILE_TRAIN);
    if (!profile)
        return CN_EXIT_PROFILE;
    settings = malloc(sizeof(*settings));
    if (!cn_check_memory(options.profile, cn_profile_settings(profile), "")) {
        code = CN_EXIT_PROFILE;
    } else if (settings) {
        *settings = *cn_profile_settings(profile);
        lay_over(&options, settings);
        code = train(ports, settings, &options);
    }
    free(settings);
    cn_profile_free(profile);
    return code;
}

const struct cn_command cn_command_train = {
    .name = "train",
    .summary = "train alone, without any network",
    .help = help,
    .run = run,
};
