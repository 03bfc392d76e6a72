// node_train.c - "cairn-node train": trains alone.
#include <stdio.h>
#include <unistd.h>

#include "runtime/command/command.h"
#include "runtime/engine/onnx_file.h"
#include "runtime/port/platform.h"
#include "runtime/round/alone.h"

static const char help[] =
    "Usage: cairn-node train [--json] PROFILE\n"
    "\n"
    "Trains the profile's job on this board, without any network or keys. "
    "Goes on where it stopped. The\n"
    "model is in STATE/model.current.onnx after each round and in "
    "STATE/model.safetensors at the end.\n"
    "A changed job starts anew, unless only its count of rounds or stop rules changed.\n"
    "\n"
    "  --json             one JSON object for each round\n"
    "  --log-level LEVEL  error, warn, info or debug\n";

struct printer {
    uint32_t rounds;
    bool json;
};

static void print_round(void *context, const struct cn_alone_report *report)
{
    const struct printer *printer = context;

    if (printer->json) {
        printf("{\"round\":%u,\"train_loss\":%.6g,\"step_ms\":%.3f", report->round,
               report->train_loss, report->step_ms);
        if (report->held_out_count)
            printf(",\"held_out_loss\":%.6g,\"held_out_accuracy\":%.4f", report->held_out_loss,
                   report->held_out_accuracy);
        printf("}\n");
    } else {
        printf("round %u/%u  train loss %.4f", report->round, printer->rounds, report->train_loss);
        if (report->held_out_count)
            printf("  held-out loss %.4f  accuracy %.3f", report->held_out_loss,
                   report->held_out_accuracy);
        printf("  %.2f ms/step\n", report->step_ms);
    }
    fflush(stdout);
}

static int explain(cn_err err, const struct cn_settings *settings, const struct cn_diag *diag)
{
    cn_command_print_diag(diag);
    if (err == CN_OK) {
        fprintf(stderr, "model: %s/model.current.onnx\n", settings->state);
        return CN_EXIT_DONE;
    }
    if (err == CN_ECANCELED) {
        fprintf(stderr, "stopped; the same command goes on from here\n");
        return CN_EXIT_INTERRUPTED;
    }
    if (err != CN_EDIVERGED)
        fprintf(stderr, "error: training %s: %s\n", settings->model, cn_err_text(err));
    return CN_EXIT_FAILED;
}

static int train(const struct cn_ports *ports, const struct cn_settings *settings, bool json)
{
    static struct cn_diag diag;
    struct printer printer = {.rounds = settings->job.rounds, .json = json};
    struct cn_alone_config config = {
        .settings = settings, .report = print_round, .context = &printer};
    struct cn_onnx_file model;
    cn_err err;

    cn_diag_init(&diag);
    config.compute = cn_command_compute(ports, settings->device);
    if (!config.compute)
        return CN_EXIT_FAILED;
    err = cn_onnx_file_open(settings->model, &diag, &model);
    if (err) {
        cn_command_print_diag(&diag);
        return CN_EXIT_FAILED;
    }
    config.model = model.data;
    config.model_size = model.size;
    err = cn_platform_open_store(settings->state, &config.store);
    if (err) {
        fprintf(stderr, "error: state directory %s: %s\n", settings->state,
                err == CN_EEXIST ? "another cairn-node uses it" : cn_err_text(err));
        cn_onnx_file_close(&model);
        return CN_EXIT_FAILED;
    }
    config.stop = cn_command_catch_signals();
    err = cn_alone_run(&config, &diag);
    config.store->ops->close(config.store);
    cn_onnx_file_close(&model);
    return explain(err, settings, &diag);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_profile *profile;
    bool json;
    int code;

    code = cn_command_take_profile(argc, argv, help, CN_PROFILE_TRAIN, &json, &profile);
    if (code)
        return code;
    code = train(ports, cn_profile_settings(profile), json);
    cn_profile_free(profile);
    return code;
}

const struct cn_command cn_command_train = {
    .name = "train",
    .summary = "train alone, without any network",
    .help = help,
    .run = run,
};
