#include "runtime/engine/dataset.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/base/bytes.h"
#include "runtime/base/random.h"
#include "runtime/engine/dataset_private.h"

uint64_t cn_dataset_key(uint64_t seed, uint64_t stream, uint64_t number)
{
    uint32_t block[4];

    cn_random_block(seed, stream, number, block);
    return (uint64_t)block[1] << 32 | block[0];
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
    dataset->held_out = (uint64_t)((double)dataset->count * share);
    if (share > 0 && dataset->held_out == 0 && dataset->count > 1)
        dataset->held_out = 1;
}

// Shapes made by hand may know only one input.
static void complete_shape(struct cn_sample_shape *shape)
{
    if (!shape->input_count) {
        shape->input_count = 1;
        shape->inputs[0].rank = shape->rank;
        shape->inputs[0].integers = shape->integers;
        for (uint32_t d = 0; d < shape->rank; d++)
            shape->inputs[0].dims[d] = shape->dims[d];
    }
    if (!shape->rows)
        shape->rows = 1;
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
    opened->shape = *shape;
    complete_shape(&opened->shape);
    if (config->rules)
        opened->rules = *config->rules;
    opened->scale = (float)config->scale;
    opened->mean = (float)config->mean;
    opened->seed = config->seed;
    opened->sequential = config->sequential;
    opened->split_key = cn_dataset_key(config->seed, STREAM_SPLIT, 0);
    err = cn_dataset_load(opened, config, diag);
    if (!err) {
        set_split(opened, config->held_out);
        err = cn_dataset_measure(opened);
    }
    if (err) {
        cn_dataset_close(opened);
        return err;
    }
    *dataset = opened;
    return CN_OK;
}

void cn_dataset_close(struct cn_dataset *dataset)
{
    if (!dataset)
        return;
    for (uint32_t i = 0; i < dataset->input_count; i++)
        cn_source_deinit(&dataset->inputs[i].source);
    cn_source_deinit(&dataset->labels.source);
    free(dataset->shift);
    free(dataset->factor);
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

// The permutation puts the held-out samples first; in file order they are the last ones.
uint64_t cn_dataset_locate(const struct cn_dataset *dataset, enum cn_split split, uint64_t index)
{
    if (split == CN_SPLIT_ALL || dataset->held_out == 0)
        return index;
    if (dataset->sequential)
        return split == CN_SPLIT_TRAIN ? index : dataset->count - dataset->held_out + index;
    if (split == CN_SPLIT_TRAIN)
        index += dataset->held_out;
    return cn_random_permute(dataset->split_key, dataset->count, index);
}

void cn_dataset_train_batch(const struct cn_dataset *dataset, uint64_t index, uint32_t size,
                            struct cn_batch *batch)
{
    uint64_t count = cn_dataset_count(dataset, CN_SPLIT_TRAIN);

    assert(count > 0);
    for (uint32_t i = 0; i < size; i++) {
        uint64_t number = index * size + i; // samples drawn before this one
        uint64_t key = cn_dataset_key(dataset->seed, STREAM_EPOCH, number / count);
        uint64_t place =
            dataset->sequential ? number % count : cn_random_permute(key, count, number % count);

        cn_dataset_copy(dataset, cn_dataset_locate(dataset, CN_SPLIT_TRAIN, place), i, number,
                        batch);
    }
    batch->count = size;
}

void cn_dataset_range(const struct cn_dataset *dataset, enum cn_split split, uint64_t first,
                      uint32_t size, struct cn_batch *batch)
{
    uint64_t count = cn_dataset_count(dataset, split);

    batch->count = 0;
    while (batch->count < size && first + batch->count < count) {
        cn_dataset_copy(dataset, cn_dataset_locate(dataset, split, first + batch->count),
                        batch->count, UINT64_MAX, batch);
        batch->count++;
    }
}

static cn_err input_words(const struct cn_sample_shape *shape, size_t *words)
{
    struct cn_sample_shape whole = *shape;

    complete_shape(&whole);
    *words = 0;
    for (uint32_t i = 0; i < whole.input_count; i++) {
        size_t part = 1;

        for (uint32_t d = 0; d < whole.inputs[i].rank; d++)
            if (cn_size_multiply(part, whole.inputs[i].dims[d], &part))
                return CN_ENOMEM;
        *words += part;
    }
    return CN_OK;
}

cn_err cn_batch_init(const struct cn_sample_shape *shape, uint32_t size, struct cn_batch *batch)
{
    bool classes = shape->loss == CN_LOSS_CROSS_ENTROPY;
    size_t inputs, labels, targets;
    cn_err err;

    *batch = (struct cn_batch){0};
    err = input_words(shape, &inputs);
    if (err || cn_size_multiply(inputs, size, &inputs) ||
        cn_size_multiply(size, shape->rows, &labels) ||
        cn_size_multiply(size, shape->outputs, &targets))
        return CN_ENOMEM;
    batch->inputs = calloc(inputs + 1, sizeof(float));
    batch->labels = calloc(labels + 1, sizeof(int32_t));
    batch->targets = calloc(classes ? 1 : targets + 1, sizeof(float));
    if (batch->inputs && batch->labels && batch->targets)
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
