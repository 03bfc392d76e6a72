// dataset_load.c - opens the files of a data set and checks every value once.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/base/words.h"
#include "runtime/engine/data/dataset_private.h"

#define SHAPE_TEXT_SIZE 128

struct sample { // dims of a sample in a file, in the order of its values
    uint32_t rank;
    uint64_t dims[CN_NPY_RANK_MAX + 1];
};

// "(1, 8, 8)"
static void shape_text(const uint64_t *dims, uint32_t rank, char text[SHAPE_TEXT_SIZE])
{
    int at = snprintf(text, SHAPE_TEXT_SIZE, "(");

    for (uint32_t i = 0; i < rank && at < SHAPE_TEXT_SIZE - 24; i++)
        at += snprintf(text + at, (size_t)(SHAPE_TEXT_SIZE - at), "%s%" PRIu64, i ? ", " : "",
                       dims[i]);
    snprintf(text + at, (size_t)(SHAPE_TEXT_SIZE - at), ")");
}

static cn_err open_column(const char *path, bool integers, struct cn_diag *diag,
                          struct column *column)
{
    const struct cn_npy *npy = &column->source.array;
    cn_err err = cn_source_open(path, integers, diag, &column->source);

    if (err)
        return err;
    if (npy->rank == 0 || npy->dims[0] == 0) {
        cn_diag_add(diag, "%s: no samples; the first dimension counts them", path);
        return CN_EFORMAT;
    }
    column->row = npy->count / npy->dims[0];
    column->stride = 1;
    column->integers = integers;
    return CN_OK;
}

static cn_err check_finite(const struct cn_npy *npy, const char *path, struct cn_diag *diag)
{
    size_t size = npy->count / npy->dims[0];

    for (size_t i = 0; i < npy->count; i++) {
        float value = cn_get_f32(npy->data + i * sizeof(float));

        if (isfinite(value))
            continue;
        cn_diag_add(diag, "%s: sample %zu has %s at its value %zu; wanted finite numbers", path,
                    i / size, isnan(value) ? "NaN" : "infinity", i % size);
        return CN_EFORMAT;
    }
    return CN_OK;
}

// Checks the type. Float inputs are float32 or bytes; integer inputs are any integers that fit
// int32.
static cn_err check_type(const struct column *column, const char *path, struct cn_diag *diag)
{
    const struct cn_npy *npy = &column->source.array;
    char type[CN_NPY_TYPE_SIZE];

    cn_npy_type_text(npy, type);
    if (!column->integers && strcmp(type, "float32") != 0 && strcmp(type, "uint8") != 0) {
        cn_diag_add(diag,
                    "%s: the inputs are %s; wanted float32 or uint8: save them with "
                    ".astype(numpy.float32)",
                    path, type);
        return CN_EFORMAT;
    }
    if (column->integers && npy->kind == CN_NPY_FLOAT) {
        cn_diag_add(diag,
                    "%s: the inputs are %s; this input of the model wants integers: save them "
                    "with .astype(numpy.int64)",
                    path, type);
        return CN_EFORMAT;
    }
    for (size_t i = 0; column->integers && i < npy->count; i++) {
        int64_t value = cn_npy_int(npy, i);

        if (value >= INT32_MIN && value <= INT32_MAX)
            continue;
        cn_diag_add(diag, "%s: the value %" PRId64 " does not fit 32 bits", path, value);
        return CN_EFORMAT;
    }
    return npy->kind == CN_NPY_FLOAT ? check_finite(npy, path, diag) : CN_OK;
}

// Returns the number of samples that the rows make: one each, or windows of rows.
static uint64_t samples_of(const struct cn_dataset *dataset, const struct column *column)
{
    uint64_t rows = column->source.array.dims[0], window = dataset->rules.window;

    if (!window)
        return rows;
    return rows < window ? 0 : (rows - window) / column->stride + 1;
}

// Returns the dims of a sample in a file; the rows of a window come first.
static void sample_shape(const struct cn_dataset *dataset, const struct column *column,
                         struct sample *sample)
{
    const struct cn_npy *npy = &column->source.array;

    *sample = (struct sample){0};
    if (dataset->rules.window)
        sample->dims[sample->rank++] = dataset->rules.window;
    for (uint32_t d = 1; d < npy->rank; d++)
        sample->dims[sample->rank++] = npy->dims[d];
}

// Returns whether dims only joins neighbours of parts. Both have the same product.
static bool joins(const uint64_t *dims, uint32_t rank, const uint64_t *parts, uint32_t part_count)
{
    uint32_t at = 0;

    for (uint32_t d = 0; d < rank; d++) {
        uint64_t words = 1;

        while (words < dims[d] && at < part_count)
            words *= parts[at++];
        if (words != dims[d])
            return false;
    }
    return true;
}

// Returns whether values have the same order in both. (192) and (3, 8, 8), or (8, 8) and (1, 8, 8),
// do; (8, 8, 3) has the same number of values as (3, 8, 8), in another order.
static bool same_order(const struct sample *found, const struct cn_input_shape *wanted)
{
    return joins(found->dims, found->rank, wanted->dims, wanted->rank) ||
           joins(wanted->dims, wanted->rank, found->dims, found->rank);
}

// Writes the axes of the file in the order that the model wants: "0, 3, 1, 2". Returns false when
// no order fits.
static bool axes_text(const struct sample *found, const struct cn_input_shape *wanted,
                      char text[SHAPE_TEXT_SIZE])
{
    bool taken[CN_NPY_RANK_MAX + 1] = {false};
    int at = snprintf(text, SHAPE_TEXT_SIZE, "0");

    if (found->rank != wanted->rank)
        return false;
    for (uint32_t d = 0; d < wanted->rank; d++) {
        uint32_t axis = 0;

        while (axis < found->rank && (taken[axis] || found->dims[axis] != wanted->dims[d]))
            axis++;
        if (axis == found->rank)
            return false;
        taken[axis] = true;
        at += snprintf(text + at, (size_t)(SHAPE_TEXT_SIZE - at), ", %u", axis + 1);
    }
    return true;
}

static cn_err refuse_order(const struct cn_dataset *dataset, const struct sample *found,
                           const struct cn_input_shape *wanted, const char *path,
                           struct cn_diag *diag)
{
    char found_text[SHAPE_TEXT_SIZE], wanted_text[SHAPE_TEXT_SIZE], axes[SHAPE_TEXT_SIZE];

    shape_text(found->dims, found->rank, found_text);
    shape_text(wanted->dims, wanted->rank, wanted_text);
    if (dataset->rules.window)
        cn_diag_add(diag,
                    "%s: a window has the shape %s, its rows first; the model wants %s, the same "
                    "values in another order: let the model transpose them",
                    path, found_text, wanted_text);
    else if (axes_text(found, wanted, axes))
        cn_diag_add(diag,
                    "%s: a sample has the shape %s; the model wants %s: transpose the array, with "
                    "numpy.transpose(array, (%s))",
                    path, found_text, wanted_text, axes);
    else
        cn_diag_add(diag,
                    "%s: a sample has the shape %s; the model wants %s: save the array in this "
                    "shape, or with flat samples",
                    path, found_text, wanted_text);
    return CN_EFORMAT;
}

static cn_err check_shape(const struct cn_dataset *dataset, const struct column *column,
                          const struct cn_input_shape *wanted, const char *path,
                          struct cn_diag *diag)
{
    size_t window = dataset->rules.window ? dataset->rules.window : 1;
    char found_text[SHAPE_TEXT_SIZE], wanted_text[SHAPE_TEXT_SIZE];
    struct sample found;

    sample_shape(dataset, column, &found);
    if (column->row * window == column->words)
        return same_order(&found, wanted) ? CN_OK
                                          : refuse_order(dataset, &found, wanted, path, diag);
    shape_text(column->source.array.dims + 1, column->source.array.rank - 1, found_text);
    shape_text(wanted->dims, wanted->rank, wanted_text);
    if (dataset->rules.window)
        cn_diag_add(diag, "%s: a window of %zu rows of the shape %s; the model wants %s", path,
                    window, found_text, wanted_text);
    else
        cn_diag_add(diag, "%s: a sample has the shape %s; the model wants %s", path, found_text,
                    wanted_text);
    return CN_EFORMAT;
}

static cn_err refuse_label(const char *path, size_t sample, int64_t label, uint64_t classes,
                           struct cn_diag *diag)
{
    cn_diag_add(diag,
                "%s: sample %zu has the label %" PRId64 "; the model's classes are 0 to %" PRIu64
                "%s",
                path, sample, label, classes - 1,
                classes == 1 ? "; for yes-or-no answers use float32 labels and "
                               "`loss: binary_cross_entropy`"
                             : "");
    return CN_EFORMAT;
}

// Checks an input from which the model takes class numbers.
static cn_err check_class_input(const struct column *column, const struct cn_input_shape *wanted,
                                const char *path, struct cn_diag *diag)
{
    const struct cn_npy *npy = &column->source.array;

    for (size_t i = 0; wanted->classes && i < npy->count; i++) {
        int64_t label = cn_npy_int(npy, i);

        if ((label < 0 || (uint64_t)label >= wanted->classes) && label != wanted->ignored)
            return refuse_label(path, i / column->row, label, wanted->classes, diag);
    }
    return CN_OK;
}

// Checks an input whose values pick rows of a table, such as the tokens of a text.
static cn_err check_rows(const struct column *column, const struct cn_input_shape *wanted,
                         const char *path, struct cn_diag *diag)
{
    const struct cn_npy *npy = &column->source.array;
    int64_t rows = (int64_t)wanted->table_rows;

    for (size_t i = 0; rows && i < npy->count; i++) {
        int64_t value = cn_npy_int(npy, i);

        if (value >= -rows && value < rows)
            continue;
        cn_diag_add(diag,
                    "%s: sample %zu has the value %" PRId64 "; the model's table has a row for "
                    "0 to %" PRId64,
                    path, i / column->row, value, rows - 1);
        return CN_EFORMAT;
    }
    return CN_OK;
}

static cn_err load_input(const struct cn_dataset *dataset, uint32_t index, const char *path,
                         struct cn_diag *diag, struct shard *shard)
{
    const struct cn_input_shape *shape = &dataset->shape.inputs[index];
    struct column *column = &shard->inputs[index];
    cn_err err = open_column(path, shape->integers, diag, column);

    if (err)
        return err;
    if (dataset->rules.window && dataset->rules.stride)
        column->stride = dataset->rules.stride;
    column->words = dataset->input_words[index];
    err = check_type(column, path, diag);
    if (err)
        return err;
    err = check_shape(dataset, column, shape, path, diag);
    if (err)
        return err;
    err = check_class_input(column, shape, path, diag);
    if (!err)
        err = check_rows(column, shape, path, diag);
    if (err)
        return err;
    if (samples_of(dataset, column) == 0) {
        cn_diag_add(diag, "%s: %" PRIu64 " rows are fewer than a window has", path,
                    column->source.array.dims[0]);
        return CN_EFORMAT;
    }
    return CN_OK;
}

static bool is_ignored(const struct cn_dataset *dataset, int64_t label)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, label);
    return cn_words_match(dataset->rules.ignore, text);
}

static cn_err check_classes(const struct cn_dataset *dataset, const struct column *labels,
                            const char *path, struct cn_diag *diag)
{
    const struct cn_npy *npy = &labels->source.array;
    char text[SHAPE_TEXT_SIZE];

    if (npy->kind == CN_NPY_FLOAT) {
        cn_npy_type_text(npy, text);
        cn_diag_add(diag,
                    "%s: the labels are %s; %s wants class numbers: save them with "
                    ".astype(numpy.int64)",
                    path, text, dataset->rules.one_hot ? "one_hot" : "cross-entropy");
        return CN_EFORMAT;
    }
    for (size_t i = 0; i < npy->count; i++) {
        int64_t label = cn_npy_int(npy, i);

        if ((label >= 0 && (uint64_t)label < dataset->shape.outputs) || is_ignored(dataset, label))
            continue;
        return refuse_label(path, i / labels->row, label, dataset->shape.outputs, diag);
    }
    return CN_OK;
}

static cn_err check_targets(const struct cn_dataset *dataset, const struct column *labels,
                            const char *path, struct cn_diag *diag)
{
    const struct cn_npy *npy = &labels->source.array;
    char type[CN_NPY_TYPE_SIZE];
    cn_err err;

    cn_npy_type_text(npy, type);
    if (strcmp(type, "float32") != 0) {
        cn_diag_add(diag,
                    "%s: the targets are %s; %s wants float32: save them with "
                    ".astype(numpy.float32)",
                    path, type,
                    dataset->shape.loss == CN_LOSS_MSE ? "mean squared error" : "this loss");
        return CN_EFORMAT;
    }
    err = check_finite(npy, path, diag);
    for (size_t i = 0; !err && dataset->shape.loss == CN_LOSS_BINARY_ENTROPY && i < npy->count;
         i++) {
        float value = cn_get_f32(npy->data + i * sizeof(float));

        if (value >= 0 && value <= 1)
            continue;
        cn_diag_add(diag, "%s: sample %zu has the target %g; binary cross-entropy wants 0 to 1",
                    path, i / labels->row, (double)value);
        err = CN_EFORMAT;
    }
    return err;
}

static cn_err refuse_label_shape(const struct cn_dataset *dataset, const struct column *labels,
                                 const char *path, struct cn_diag *diag)
{
    const struct cn_npy *npy = &labels->source.array;
    char text[SHAPE_TEXT_SIZE];

    shape_text(npy->dims, npy->rank, text);
    if (dataset->shape.loss != CN_LOSS_CROSS_ENTROPY && !dataset->rules.one_hot)
        cn_diag_add(diag, "%s: a target has %zu values; an output of the model has %zu", path,
                    labels->row, labels->words);
    else if (dataset->shape.rows > 1)
        cn_diag_add(diag,
                    "%s: the labels have the shape %s; wanted %" PRIu64 " class numbers a sample",
                    path, text, dataset->shape.rows);
    else
        cn_diag_add(diag,
                    "%s: the labels have the shape %s; wanted one class number a sample, which "
                    "numpy.argmax(labels, 1) makes of one-hot rows",
                    path, text);
    return CN_EFORMAT;
}

// Finds the labels of a sample. Where the file has a label for each row of a series, a window has
// the labels of all its rows, or only that of its last row. Else it has a label for each window.
static cn_err place_labels(const struct cn_dataset *dataset, const char *path, struct cn_diag *diag,
                           struct shard *shard)
{
    struct column *labels = &shard->labels;
    const struct column *inputs = &shard->inputs[0];
    size_t window = dataset->rules.window;
    bool series = window && labels->source.array.dims[0] == inputs->source.array.dims[0];

    if (series)
        labels->stride = inputs->stride;
    if (series && labels->row * window == labels->words)
        return CN_OK;
    if (labels->row != labels->words)
        return refuse_label_shape(dataset, labels, path, diag);
    if (series)
        labels->first = window - 1;
    return CN_OK;
}

static cn_err load_labels(const struct cn_dataset *dataset, const char *path, struct cn_diag *diag,
                          struct column *labels)
{
    bool classes = dataset->shape.loss == CN_LOSS_CROSS_ENTROPY || dataset->rules.one_hot;
    cn_err err = open_column(path, classes, diag, labels);

    if (err)
        return err;
    labels->words = dataset->shape.loss == CN_LOSS_CROSS_ENTROPY ? dataset->shape.rows
                    : dataset->rules.one_hot                     ? 1
                                                                 : dataset->shape.outputs;
    return CN_OK;
}

static cn_err check_labels(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                           struct cn_diag *diag, struct shard *shard)
{
    struct column *labels = &shard->labels;
    bool series = labels->source.array.dims[0] == shard->inputs[0].source.array.dims[0];
    cn_err err;

    if (!series && shard->count && labels->source.array.dims[0] != shard->count) {
        cn_diag_add(diag, "%s has %" PRIu64 " labels, but %s has %" PRIu64 " samples",
                    files->labels, labels->source.array.dims[0],
                    files->other_count ? files->others[0].path : files->inputs, shard->count);
        return CN_EFORMAT;
    }
    if (dataset->shape.loss != CN_LOSS_CROSS_ENTROPY && !dataset->rules.one_hot) {
        err = check_targets(dataset, labels, files->labels, diag);
        return err ? err : place_labels(dataset, files->labels, diag, shard);
    }
    err = place_labels(dataset, files->labels, diag, shard);
    return err ? err : check_classes(dataset, labels, files->labels, diag);
}

// Returns the file of an input, by its name. A single unnamed file belongs to the first input.
static const char *path_of(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                           uint32_t index)
{
    for (size_t i = 0; i < files->other_count; i++)
        if (strcmp(files->others[i].name, dataset->shape.inputs[index].name) == 0)
            return files->others[i].path;
    if (files->other_count || index > 0 || !files->inputs || !files->inputs[0])
        return NULL;
    return files->inputs;
}

// Appends a name in quotes to a list: "'a', 'b'".
static void add_name(char text[SHAPE_TEXT_SIZE], const char *name)
{
    size_t at = strlen(text);

    snprintf(text + at, SHAPE_TEXT_SIZE - at, "%s'%s'", at ? ", " : "", name);
}

static cn_err refuse_missing(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                             uint32_t index, struct cn_diag *diag)
{
    const char *wanted = dataset->shape.inputs[index].name;
    char given[SHAPE_TEXT_SIZE] = "";

    for (size_t i = 0; i < files->other_count; i++)
        add_name(given, files->others[i].name);
    cn_diag_add(diag, "no file for the input '%s' of the model; wanted inputs: {%s: FILE}%s%s",
                wanted, wanted, given[0] ? "; there are " : "", given);
    return CN_EFORMAT;
}

void cn_dataset_warn_unused(const struct cn_dataset *dataset, const struct cn_dataset_files *files)
{
    char wanted[SHAPE_TEXT_SIZE] = "";

    for (uint32_t i = 0; i < dataset->shape.input_count; i++)
        add_name(wanted, dataset->shape.inputs[i].name);
    for (size_t i = 0; i < files->other_count; i++) {
        uint32_t at = 0;

        while (at < dataset->shape.input_count &&
               strcmp(files->others[i].name, dataset->shape.inputs[at].name) != 0)
            at++;
        if (at == dataset->shape.input_count)
            cn_log(CN_LOG_WARN, "data", "%s is not used: the model has no input '%s', but %s",
                   files->others[i].path, files->others[i].name, wanted);
    }
}

// Checks that all inputs have as many samples as the first one that could be read.
static cn_err check_count(const struct cn_dataset *dataset, uint32_t index, const char *path,
                          struct cn_diag *diag, struct shard *shard)
{
    uint64_t count = samples_of(dataset, &shard->inputs[index]);

    if (!shard->count)
        shard->count = count;
    if (count == shard->count)
        return CN_OK;
    cn_diag_add(diag, "%s has %" PRIu64 " samples, but the inputs before it have %" PRIu64, path,
                count, shard->count);
    return CN_EFORMAT;
}

static cn_err load_inputs(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                          struct cn_diag *diag, struct shard *shard)
{
    cn_err err = CN_OK;

    for (uint32_t i = 0; i < dataset->shape.input_count; i++) {
        const char *path = path_of(dataset, files, i);
        cn_err one;

        shard->input_count = i + 1;
        one = path ? load_input(dataset, i, path, diag, shard)
                   : refuse_missing(dataset, files, i, diag);
        if (!one)
            one = check_count(dataset, i, path, diag, shard);
        err = err ? err : one;
    }
    return err;
}

cn_err cn_dataset_load(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                       struct cn_diag *diag, struct shard *shard)
{
    // Inputs and labels are checked before giving up, so that a user sees all mistakes at once.
    cn_err err = load_inputs(dataset, files, diag, shard), label_err = CN_OK;

    if (dataset->shape.loss == CN_LOSS_OUTPUT)
        return err;
    if (!files->labels || !files->labels[0]) {
        cn_diag_add(diag, "the data set has no labels");
        return CN_EFORMAT;
    }
    label_err = load_labels(dataset, files->labels, diag, &shard->labels);
    if (!label_err && shard->inputs[0].source.array.count)
        label_err = check_labels(dataset, files, diag, shard);
    return err ? err : label_err;
}
