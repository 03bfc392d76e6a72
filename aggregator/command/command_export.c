// cairn-aggregator export: writes a version of the model as ONNX and safetensors.
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/output_file.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/store/model_store.h"
#include "aggregator/store/state_owner.h"
#include "runtime/engine/onnx/onnx_inference.h"
#include "runtime/update/local_tensors.h"

static const char help[] =
    "Usage: cairn-aggregator export PROFILE [--version N|last|best] [--best]\n"
    "                               [--training] -o PREFIX\n"
    "\n"
    "Writes PREFIX.onnx and PREFIX.safetensors. Works while the aggregator runs.\n"
    "\n"
    "PREFIX.onnx is for inference: BatchNormalization uses its running statistics,\n"
    "Dropout drops nothing.\n"
    "\n"
    "  --version V      a number, last (the default) or best: the best measured one\n"
    "  --best           the same as --version best\n"
    "  --training       PREFIX.onnx in the form that the job's model has, to train\n"
    "                   on\n"
    "  -o PREFIX        existing files are replaced\n";

static int write_file(const char *prefix, const char *suffix, const struct cn_buffer *buffer)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s.%s", prefix, suffix);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        fprintf(stderr, "%s: %s\n", prefix, strerror(ENAMETOOLONG));
        return CN_EXIT_FAILED;
    }
    int result = cn_output_file_write(path, buffer);
    if (!result)
        printf("%s\n", path);
    return result;
}

// Versions have the values of version 0 for what each group keeps for itself.
static void note_untrained(const struct cn_layout *layout)
{
    char text[CN_LOCAL_TEXT_SIZE];
    cn_local_tensors_text(layout, text);
    if (text[0])
        printf("untrained, because each group keeps its own: %s\n", text);
}

static int write_both(const struct cn_setup *setup, const struct cn_model *model,
                      const char *prefix, enum cn_export_form form)
{
    const struct cn_model_file *file = &setup->model;
    struct cn_buffer onnx, safetensors;
    cn_buffer_init(&onnx, CN_ONNX_FILE_MAX);
    cn_buffer_init(&safetensors, CN_ONNX_FILE_MAX);
    cn_err err = cn_export_onnx(file->onnx, &file->layout, cn_model_weights(model), form, &onnx);
    if (!err)
        err = cn_export_safetensors(&file->layout, cn_model_weights(model), &safetensors);
    const struct cn_onnx_node *random = cn_onnx_inference_random(file->onnx);
    int result = CN_EXIT_FAILED;
    if (random && form == CN_EXPORT_INFERENCE)
        fprintf(stderr, "warning: %s.onnx: its %.*s draws random numbers for inference, too\n",
                prefix, (int)random->op.size, random->op.data);
    if (err)
        fprintf(stderr, "%s: %s\n", prefix, cn_err_text(err));
    else
        result = write_file(prefix, "onnx", &onnx);
    if (!result)
        result = write_file(prefix, "safetensors", &safetensors);
    if (!result)
        note_untrained(&file->layout);
    cn_buffer_deinit(&onnx);
    cn_buffer_deinit(&safetensors);
    return result;
}

static int export_version(const struct cn_setup *setup, const char *version, const char *prefix,
                          enum cn_export_form form)
{
    struct cn_model model;
    uint32_t number;
    cn_err err = cn_setup_choose_version(setup->ledger, &setup->job, version, &number);
    if (!err)
        err = cn_model_load_weights(setup->store, setup->ledger, &setup->model.layout, number,
                                    &model);
    if (err) {
        fprintf(stderr, "error: version %s: %s\n", version,
                cn_setup_explain_choice(err, "there is none, or it is no longer kept"));
        return CN_EXIT_FAILED;
    }
    cn_state_owner_leave();
    int result = write_both(setup, &model, prefix, form);
    cn_state_owner_return();
    if (!result)
        fprintf(stderr, "version %u\n", number);
    cn_model_deinit(&model);
    return result;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"version", required_argument, NULL, 'v'},
        {"output", required_argument, NULL, 'o'},
        {"best", no_argument, NULL, 'b'},
        {"training", no_argument, NULL, 't'},
        {0},
    };
    const char *positional[1], *version = "last", *prefix = NULL;
    enum cn_export_form form = CN_EXPORT_INFERENCE;
    (void)ports;
    int option;
    while ((option = getopt_long(argc, argv, "o:", known, NULL)) != -1) {
        if (option == 'v')
            version = optarg;
        else if (option == 'b')
            version = "best";
        else if (option == 'o')
            prefix = optarg;
        else if (option == 't')
            form = CN_EXPORT_TRAINING;
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    if (!prefix) {
        fprintf(stderr, "error: -o PREFIX is missing; see --help\n");
        return CN_EXIT_USAGE;
    }
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    if (!result)
        result = export_version(&setup, version, prefix, form);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_export = {
    .name = "export",
    .summary = "write a version as ONNX and safetensors",
    .help = help,
    .run = run,
};
