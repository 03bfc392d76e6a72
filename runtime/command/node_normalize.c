// node_normalize.c - "cairn-node normalize": puts the normalization of its input into a model.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/command.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/import/import.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/onnx/onnx_normalize.h"
#include "runtime/port/platform.h"

static const char help[] =
    "Usage: cairn-node normalize [OPTIONS] MODEL.onnx DATA OUT.onnx\n"
    "\n"
    "Writes a copy of a model that first subtracts the mean of its first input and\n"
    "divides by the deviation, as the samples in DATA have them. All boards, the\n"
    "gateway and an application then give it the same values: those of the files.\n"
    "DATA is .npy, .npz, .csv or IDX, as for training. The model trains from its\n"
    "weights as before; one of float16 or float64 becomes one of float32. Leave\n"
    "data.normalize, data.scale and data.mean out of the job: they would change the\n"
    "values once more.\n"
    "Other inputs than the first stay as they are. OUT.onnx must not exist.\n"
    "\n"
    "  --by WHAT          feature (default): each element of a sample for itself;\n"
    "                     channel: each index of the first dimension (images: CxHxW)\n"
    "  --window           samples are windows of DATA's rows (data.window): each\n"
    "                     column for itself, over all rows\n";

struct options {
    const char *model, *data, *out;
    enum cn_normalize by;
    bool window;
};

// What was measured, and over how many samples.
struct measured {
    struct cn_dataset *samples;
    struct cn_normalization numbers;
    float *mean, *factor; // owned; by channel
    uint64_t count;
    size_t constant; // features or channels without a deviation
};

// Fills in the shape of a row of the file.
static cn_err find_shape(const struct cn_onnx *onnx, const struct options *options,
                         struct cn_diag *diag, struct cn_sample_shape *shape)
{
    const struct cn_onnx_value *input = onnx->inputs;
    uint32_t first = options->window ? 2 : 1;

    *shape = (struct cn_sample_shape){.loss = CN_LOSS_OUTPUT, .input_count = 1, .outputs = 1};
    if (!onnx->input_count || input->type != CN_ONNX_FLOAT || input->rank <= first) {
        cn_diag_add(diag, "its first input is no array of float32 with %u dimensions or more",
                    first + 1);
        return CN_ENOTSUP;
    }
    snprintf(shape->inputs[0].name, sizeof(shape->inputs[0].name), "%.*s", (int)input->name.size,
             input->name.data);
    for (uint32_t d = first; d < input->rank; d++) {
        if (input->dims[d] <= 0) {
            cn_diag_add(diag, "dimension %u of input '%s' is open: export it with a fixed size", d,
                        shape->inputs[0].name);
            return CN_ENOTSUP;
        }
        shape->inputs[0].dims[shape->inputs[0].rank++] = (uint64_t)input->dims[d];
    }
    shape->rank = shape->inputs[0].rank;
    memcpy(shape->dims, shape->inputs[0].dims, sizeof(shape->dims));
    return CN_OK;
}

// Takes one number for each channel from those of its elements, which are all the same.
static cn_err take_channels(const float *mean, const float *factor, size_t words,
                            struct measured *measured)
{
    struct cn_normalization *numbers = &measured->numbers;
    size_t channels = (size_t)numbers->dims[0];

    measured->mean = calloc(channels, sizeof(float));
    measured->factor = calloc(channels, sizeof(float));
    if (!measured->mean || !measured->factor)
        return CN_ENOMEM;
    for (size_t c = 0; c < channels; c++) {
        measured->mean[c] = mean[c * (words / channels)];
        measured->factor[c] = factor[c * (words / channels)];
    }
    for (uint32_t d = 1; d < numbers->rank; d++)
        numbers->dims[d] = 1;
    numbers->mean = measured->mean;
    numbers->factor = measured->factor;
    return CN_OK;
}

static cn_err measure(const struct cn_onnx *onnx, const struct options *options,
                      struct cn_diag *diag, struct measured *measured)
{
    const struct cn_rules rules = {.normalize = options->by};
    const struct cn_dataset_config config = {
        .files = {.inputs = options->data}, .rules = &rules, .scale = 1};
    struct cn_sample_shape shape;
    size_t words = 1;
    cn_err err = find_shape(onnx, options, diag, &shape);

    if (err)
        return err;
    err = cn_dataset_open(&config, &shape, diag, &measured->samples);
    if (err)
        return err;
    measured->count = cn_dataset_count(measured->samples, CN_SPLIT_TRAIN);
    measured->numbers.rank = shape.rank;
    for (uint32_t d = 0; d < shape.rank; d++) {
        measured->numbers.dims[d] = shape.dims[d];
        words *= (size_t)shape.dims[d];
    }
    if (measured->count < 2) {
        cn_diag_add(diag, "%s: one sample has no deviation; wanted many", options->data);
        return CN_EFORMAT;
    }
    (void)cn_dataset_normalization(measured->samples, &measured->numbers.mean,
                                   &measured->numbers.factor, &measured->constant);
    return options->by == CN_NORMALIZE_CHANNEL
               ? take_channels(measured->numbers.mean, measured->numbers.factor, words, measured)
               : CN_OK;
}

static void forget(struct measured *measured)
{
    cn_dataset_close(measured->samples);
    free(measured->mean);
    free(measured->factor);
}

// Prints the least and the largest of some means or, as the inverse of factors, deviations.
static void print_range(const char *what, const float *values, size_t count, bool inverse)
{
    double least = INFINITY, most = -INFINITY;

    for (size_t i = 0; i < count; i++) {
        double value = inverse ? 1 / (double)values[i] : (double)values[i];

        least = fmin(least, value);
        most = fmax(most, value);
    }
    printf("%s%s %.4g", what, count == 1 ? "" : "s", least);
    if (count > 1)
        printf(" to %.4g", most);
}

static void print_result(const struct options *options, const struct measured *measured,
                         bool rebuilt)
{
    const struct cn_normalization *numbers = &measured->numbers;
    const char *what = options->by == CN_NORMALIZE_CHANNEL ? "channel" : "feature";
    size_t count = 1;

    for (uint32_t d = 0; d < numbers->rank; d++)
        count *= (size_t)numbers->dims[d];
    printf("%s: its first input is normalized, %zu %s%s over %" PRIu64 " %s: ", options->out, count,
           what, count == 1 ? "" : "s", measured->count, options->window ? "rows" : "samples");
    print_range("mean", numbers->mean, count, false);
    print_range(", deviation", numbers->factor, count, true);
    printf("\n");
    if (measured->constant)
        printf("%zu of them %s constant in these samples: only the mean is taken off\n",
               measured->constant, measured->constant == 1 ? "is" : "are");
    if (rebuilt)
        printf("the copy is in float32 and has all data inside, unlike %s\n", options->model);
}

static cn_err write_file(const char *path, const struct cn_buffer *bytes, struct cn_diag *diag)
{
    FILE *file = fopen(path, "wbx");
    bool written;

    if (!file) {
        cn_diag_add(diag, "%s: %s", path, strerror(errno));
        return CN_EIO;
    }
    written = fwrite(bytes->data, 1, bytes->size, file) == bytes->size;
    if (!fclose(file) && written)
        return CN_OK;
    cn_diag_add(diag, "%s: %s", path, strerror(errno));
    remove(path);
    return CN_EIO;
}

static cn_err normalize(const struct cn_onnx *onnx, const struct options *options, bool rebuilt,
                        struct cn_diag *diag)
{
    struct measured measured = {.samples = NULL};
    struct cn_buffer out;
    cn_err err = cn_import_check_opset(onnx, diag);

    if (!err)
        err = measure(onnx, options, diag, &measured);

    cn_buffer_init(&out, CN_ONNX_FILE_MAX);
    if (!err)
        err = cn_onnx_normalize(onnx, &measured.numbers, diag, &out);
    if (!err)
        err = write_file(options->out, &out, diag);
    if (!err)
        print_result(options, &measured, rebuilt);
    cn_buffer_deinit(&out);
    forget(&measured);
    return err;
}

static bool take_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"by", required_argument, NULL, 'b'},
        {"window", no_argument, NULL, 'w'},
        {0},
    };
    int option;

    *options = (struct options){.by = CN_NORMALIZE_FEATURE};
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'w') {
            options->window = true;
        } else if (option == 'b' && strcmp(optarg, "channel") == 0) {
            options->by = CN_NORMALIZE_CHANNEL;
        } else if (option == 'b' && strcmp(optarg, "feature") != 0) {
            fprintf(stderr, "error: --by '%s' is neither feature nor channel\n", optarg);
            return false;
        } else if (option == '?') {
            return false;
        }
    }
    if (optind + 3 != argc) {
        fputs(help, stderr);
        return false;
    }
    options->model = argv[optind];
    options->data = argv[optind + 1];
    options->out = argv[optind + 2];
    if (!options->window || options->by == CN_NORMALIZE_FEATURE)
        return true;
    fprintf(stderr, "error: --window measures columns; it does not go with --by channel\n");
    return false;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static struct cn_diag diag;
    struct cn_onnx_file file = {.data = NULL};
    struct cn_onnx *onnx = NULL;
    struct options options;
    cn_err err;

    (void)ports;
    if (!take_options(argc, argv, &options))
        return CN_EXIT_USAGE;
    cn_diag_init(&diag);
    err = cn_onnx_file_open(options.model, &diag, &file);
    if (!err)
        err = cn_onnx_open(file.data, file.size, &diag, &onnx);
    if (!err)
        err = normalize(onnx, &options, cn_onnx_file_memory(&file) > 0, &diag);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    if (err)
        cn_command_print_about(options.model, err, &diag);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

const struct cn_command cn_command_normalize = {
    .name = "normalize",
    .summary = "put the normalization of its input into a model",
    .help = help,
    .run = run,
};
