#include "runtime/engine/dataset.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/random.h"
#include "runtime/engine/npy.h"
#include "runtime/port/platform.h"

// What the random numbers of a seed are used for: the high half of the counter.
enum { STREAM_SPLIT = 1, STREAM_EPOCH = 2 };

struct cn_dataset {
    struct cn_mapping input_file, label_file;
    struct cn_npy inputs, labels;
    enum cn_loss loss;
    float scale, mean;
    size_t sample_size; // elements
    size_t outputs;     // elements of one target
    bool integers;      // inputs, see cn_sample_shape
    uint64_t count;     // samples
    uint64_t held_out;  // of them
    uint64_t seed;
    uint64_t split_key;
};

static uint64_t stream_key(uint64_t seed, uint64_t stream, uint64_t number)
{
    uint32_t block[4];

    cn_random_block(seed, stream, number, block);
    return (uint64_t)block[1] << 32 | block[0];
}

#define SHAPE_TEXT_SIZE 128

// "(1, 8, 8)"
static void shape_text(const uint64_t *dims, uint32_t rank, char text[SHAPE_TEXT_SIZE])
{
    int at = snprintf(text, SHAPE_TEXT_SIZE, "(");

    for (uint32_t i = 0; i < rank && at < SHAPE_TEXT_SIZE - 24; i++)
        at += snprintf(text + at, (size_t)(SHAPE_TEXT_SIZE - at), "%s%llu", i ? ", " : "",
                       (unsigned long long)dims[i]);
    snprintf(text + at, (size_t)(SHAPE_TEXT_SIZE - at), ")");
}

static cn_err map_array(const char *path, struct cn_diag *diag, struct cn_mapping *file,
                        struct cn_npy *npy)
{
    cn_err err = cn_platform_map(path, SIZE_MAX, file);

    if (err) {
        cn_diag_add(diag, "%s: cannot be read: %s", path, cn_err_text(err));
        return err;
    }
    err = cn_npy_parse(file->data, file->size, path, diag, npy);
    if (err)
        return err;
    if (npy->rank == 0 || npy->dims[0] == 0) {
        cn_diag_add(diag, "%s: no samples; the first dimension counts them", path);
        return CN_EFORMAT;
    }
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

static cn_err check_integers(const struct cn_npy *npy, const char *path, struct cn_diag *diag)
{
    size_t size = npy->count / npy->dims[0];

    for (size_t i = 0; i < npy->count; i++) {
        int64_t number = cn_npy_int(npy, i);

        if (number >= INT32_MIN && number <= INT32_MAX)
            continue;
        cn_diag_add(diag, "%s: sample %zu has %lld at its value %zu; wanted numbers of 32 bits",
                    path, i / size, (long long)number, i % size);
        return CN_EFORMAT;
    }
    return CN_OK;
}

static cn_err check_inputs(const struct cn_dataset *dataset, const char *path,
                           const struct cn_sample_shape *shape, struct cn_diag *diag)
{
    const struct cn_npy *npy = &dataset->inputs;
    char type[CN_NPY_TYPE_SIZE], found[SHAPE_TEXT_SIZE], wanted[SHAPE_TEXT_SIZE];

    cn_npy_type_text(npy, type);
    if (shape->integers && npy->kind == CN_NPY_FLOAT) {
        cn_diag_add(diag, "%s: the inputs are %s; the model takes integers", path, type);
        return CN_EFORMAT;
    }
    if (!shape->integers && strcmp(type, "float32") != 0 && strcmp(type, "uint8") != 0) {
        cn_diag_add(diag,
                    "%s: the inputs are %s; wanted float32 or uint8: save them with "
                    ".astype(numpy.float32)",
                    path, type);
        return CN_EFORMAT;
    }
    if (npy->count / npy->dims[0] != dataset->sample_size) {
        shape_text(npy->dims + 1, npy->rank - 1, found);
        shape_text(shape->dims, shape->rank, wanted);
        cn_diag_add(diag, "%s: a sample has the shape %s; the model wants %s", path, found, wanted);
        return CN_EFORMAT;
    }
    if (shape->integers)
        return check_integers(npy, path, diag);
    return npy->kind == CN_NPY_FLOAT ? check_finite(npy, path, diag) : CN_OK;
}

static cn_err check_classes(const struct cn_dataset *dataset, const char *path,
                            struct cn_diag *diag)
{
    const struct cn_npy *npy = &dataset->labels;
    char text[SHAPE_TEXT_SIZE];

    if (npy->count != npy->dims[0]) {
        shape_text(npy->dims, npy->rank, text);
        cn_diag_add(diag,
                    "%s: the labels have the shape %s; wanted one class number a sample, which "
                    "numpy.argmax(labels, 1) makes of one-hot rows",
                    path, text);
        return CN_EFORMAT;
    }
    if (npy->kind == CN_NPY_FLOAT) {
        cn_npy_type_text(npy, text);
        cn_diag_add(diag,
                    "%s: the labels are %s; cross-entropy wants class numbers: save them with "
                    ".astype(numpy.int64)",
                    path, text);
        return CN_EFORMAT;
    }
    for (size_t i = 0; i < npy->count; i++) {
        int64_t label = cn_npy_int(npy, i);

        if (label >= 0 && (uint64_t)label < dataset->outputs)
            continue;
        cn_diag_add(diag, "%s: sample %zu has the label %lld; the model's classes are 0 to %zu",
                    path, i, (long long)label, dataset->outputs - 1);
        return CN_EFORMAT;
    }
    return CN_OK;
}

static cn_err check_targets(const struct cn_dataset *dataset, const char *path,
                            struct cn_diag *diag)
{
    const struct cn_npy *npy = &dataset->labels;
    char type[CN_NPY_TYPE_SIZE];

    cn_npy_type_text(npy, type);
    if (strcmp(type, "float32") != 0) {
        cn_diag_add(diag,
                    "%s: the targets are %s; mean squared error wants float32: save them with "
                    ".astype(numpy.float32)",
                    path, type);
        return CN_EFORMAT;
    }
    if (npy->count / npy->dims[0] != dataset->outputs) {
        cn_diag_add(diag, "%s: a target has %llu values; an output of the model has %zu", path,
                    (unsigned long long)(npy->count / npy->dims[0]), dataset->outputs);
        return CN_EFORMAT;
    }
    return check_finite(npy, path, diag);
}

static cn_err check_labels(const struct cn_dataset *dataset, const struct cn_dataset_config *config,
                           struct cn_diag *diag)
{
    if (dataset->labels.dims[0] != dataset->inputs.dims[0]) {
        cn_diag_add(diag, "%s has %llu labels, but %s has %llu samples", config->labels,
                    (unsigned long long)dataset->labels.dims[0], config->inputs,
                    (unsigned long long)dataset->inputs.dims[0]);
        return CN_EFORMAT;
    }
    if (dataset->loss == CN_LOSS_MSE)
        return check_targets(dataset, config->labels, diag);
    return check_classes(dataset, config->labels, diag);
}

static cn_err check_config(const struct cn_dataset_config *config,
                           const struct cn_sample_shape *shape, struct cn_diag *diag)
{
    if (!isfinite((float)config->scale) || config->scale == 0 || !isfinite((float)config->mean)) {
        cn_diag_add(diag, "scale is %g and mean %g; wanted finite numbers, scale not 0",
                    config->scale, config->mean);
        return CN_EINVAL;
    }
    if (!(config->held_out >= 0 && config->held_out <= 0.9)) {
        cn_diag_add(diag, "held_out is %g; wanted 0 to 0.9", config->held_out);
        return CN_EINVAL;
    }
    if (shape->outputs < 1 || shape->outputs > INT32_MAX) {
        cn_diag_add(diag, "an output of the model has %llu elements; wanted 1 to %d",
                    (unsigned long long)shape->outputs, INT32_MAX);
        return CN_EINVAL;
    }
    return CN_OK;
}

// A share above 0 holds out at least one sample where there are two, and never the last one.
static void set_split(struct cn_dataset *dataset, double share)
{
    dataset->count = dataset->inputs.dims[0];
    dataset->held_out = (uint64_t)((double)dataset->count * share);
    if (share > 0 && dataset->held_out == 0 && dataset->count > 1)
        dataset->held_out = 1;
}

static cn_err load(struct cn_dataset *dataset, const struct cn_dataset_config *config,
                   const struct cn_sample_shape *shape, struct cn_diag *diag)
{
    cn_err err, label_err;

    err = map_array(config->inputs, diag, &dataset->input_file, &dataset->inputs);
    label_err = map_array(config->labels, diag, &dataset->label_file, &dataset->labels);
    if (err || label_err)
        return err ? err : label_err;
    // Both are checked before giving up, so that a user sees all mistakes at once.
    err = check_inputs(dataset, config->inputs, shape, diag);
    label_err = check_labels(dataset, config, diag);
    return err ? err : label_err;
}

cn_err cn_dataset_open(const struct cn_dataset_config *config, const struct cn_sample_shape *shape,
                       struct cn_diag *diag, struct cn_dataset **dataset)
{
    struct cn_dataset *opened;
    cn_err err = check_config(config, shape, diag);

    *dataset = NULL;
    if (err)
        return err;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->loss = shape->loss;
    opened->scale = (float)config->scale;
    opened->mean = (float)config->mean;
    opened->outputs = shape->outputs;
    opened->integers = shape->integers;
    opened->seed = config->seed;
    opened->split_key = stream_key(config->seed, STREAM_SPLIT, 0);
    opened->sample_size = 1;
    for (uint32_t i = 0; i < shape->rank && !err; i++)
        err = cn_size_multiply(opened->sample_size, shape->dims[i], &opened->sample_size);
    if (!err)
        err = load(opened, config, shape, diag);
    if (err) {
        cn_dataset_close(opened);
        return err;
    }
    set_split(opened, config->held_out);
    *dataset = opened;
    return CN_OK;
}

void cn_dataset_close(struct cn_dataset *dataset)
{
    if (!dataset)
        return;
    cn_platform_unmap(&dataset->input_file);
    cn_platform_unmap(&dataset->label_file);
    free(dataset);
}

uint64_t cn_dataset_count(const struct cn_dataset *dataset, enum cn_split split)
{
    switch (split) {
    case CN_SPLIT_TRAIN:
        return dataset->count - dataset->held_out;
    case CN_SPLIT_HELD_OUT:
        return dataset->held_out;
    default:
        return dataset->count;
    }
}

// The place in the file of sample index of a split. The permutation puts the held-out samples
// first.
static uint64_t locate(const struct cn_dataset *dataset, enum cn_split split, uint64_t index)
{
    if (split == CN_SPLIT_ALL || dataset->held_out == 0)
        return index;
    if (split == CN_SPLIT_TRAIN)
        index += dataset->held_out;
    return cn_random_permute(dataset->split_key, dataset->count, index);
}

static void copy_inputs(const struct cn_dataset *dataset, uint64_t sample, float *to)
{
    size_t size = dataset->sample_size;
    const uint8_t *from = dataset->inputs.data + sample * size * dataset->inputs.element_size;
    float scale = dataset->scale;
    float mean = dataset->mean;

    if (dataset->integers) {
        for (size_t i = 0; i < size; i++) {
            int32_t number = (int32_t)cn_npy_int(&dataset->inputs, sample * size + i);

            memcpy(&to[i], &number, sizeof(number));
        }
        return;
    }
    if (dataset->inputs.kind == CN_NPY_UINT) {
        for (size_t i = 0; i < size; i++)
            to[i] = ((float)from[i] - mean) * scale;
        return;
    }
    memcpy(to, from, size * sizeof(float));
    for (size_t i = 0; i < size; i++)
        to[i] = (to[i] - mean) * scale;
}

static void copy_sample(const struct cn_dataset *dataset, uint64_t sample, uint32_t position,
                        struct cn_batch *batch)
{
    size_t size = dataset->outputs;

    copy_inputs(dataset, sample, batch->inputs + position * dataset->sample_size);
    if (dataset->loss == CN_LOSS_MSE)
        memcpy(batch->targets + position * size,
               dataset->labels.data + sample * size * sizeof(float), size * sizeof(float));
    else
        batch->labels[position] = (int32_t)cn_npy_int(&dataset->labels, sample);
}

void cn_dataset_train_batch(const struct cn_dataset *dataset, uint64_t index, uint32_t size,
                            struct cn_batch *batch)
{
    uint64_t count = cn_dataset_count(dataset, CN_SPLIT_TRAIN);

    assert(count > 0);
    for (uint32_t i = 0; i < size; i++) {
        uint64_t number = index * size + i; // samples drawn before this one
        uint64_t key = stream_key(dataset->seed, STREAM_EPOCH, number / count);
        uint64_t place = cn_random_permute(key, count, number % count);

        copy_sample(dataset, locate(dataset, CN_SPLIT_TRAIN, place), i, batch);
    }
    batch->count = size;
}

void cn_dataset_range(const struct cn_dataset *dataset, enum cn_split split, uint64_t first,
                      uint32_t size, struct cn_batch *batch)
{
    uint64_t count = cn_dataset_count(dataset, split);

    batch->count = 0;
    while (batch->count < size && first + batch->count < count) {
        copy_sample(dataset, locate(dataset, split, first + batch->count), batch->count, batch);
        batch->count++;
    }
}

cn_err cn_batch_init(const struct cn_sample_shape *shape, uint32_t size, struct cn_batch *batch)
{
    size_t inputs = size, labels, targets;
    cn_err err = CN_OK;

    *batch = (struct cn_batch){0};
    for (uint32_t i = 0; i < shape->rank && !err; i++)
        err = cn_size_multiply(inputs, shape->dims[i], &inputs);
    if (err || cn_size_multiply(size, shape->rows, &labels) ||
        cn_size_multiply(labels, shape->outputs, &targets))
        return CN_ENOMEM;
    batch->inputs = calloc(inputs + 1, sizeof(float));
    batch->labels = calloc(labels + 1, sizeof(int32_t));
    if (shape->loss != CN_LOSS_CROSS_ENTROPY)
        batch->targets = calloc(targets + 1, sizeof(float));
    if (batch->inputs && batch->labels && (batch->targets || shape->loss == CN_LOSS_CROSS_ENTROPY))
        return CN_OK;
    cn_batch_deinit(batch);
    return CN_ENOMEM;
}

void cn_batch_deinit(struct cn_batch *batch)
{
    free(batch->inputs);
    free(batch->labels);
    free(batch->targets);
    *batch = (struct cn_batch){0};
}
