#include "runtime/engine/data/dataset.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/engine/data/dataset_private.h"

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
        cn_diag_add(diag, "an output of the model has %" PRIu64 " elements; wanted 1 to %d",
                    shape->outputs, INT32_MAX);
        return CN_EINVAL;
    }
    return CN_OK;
}

// Checks that random crops do not move an image out of itself.
static cn_err check_crop(const struct cn_dataset *dataset, struct cn_diag *diag)
{
    const struct cn_input_shape *shape = &dataset->shape.inputs[0];
    const struct cn_rules *rules = &dataset->rules;
    uint32_t rank = shape->rank;

    if (!rules->crop && !rules->flip)
        return CN_OK;
    if (rank < 2 || shape->integers) {
        cn_diag_add(diag, "data.%s is for images, and the model's samples are %s",
                    rules->crop ? "crop" : "flip", shape->integers ? "whole numbers" : "flat");
        return CN_EINVAL;
    }
    if (rules->crop < shape->dims[rank - 1] && rules->crop < shape->dims[rank - 2])
        return CN_OK;
    cn_diag_add(diag,
                "data.crop is %u, and an image has %" PRIu64 "x%" PRIu64 "; wanted less than that",
                rules->crop, shape->dims[rank - 2], shape->dims[rank - 1]);
    return CN_EINVAL;
}

// Completes a shape that describes only the first input.
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

static cn_err count_words(struct cn_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->shape.input_count; i++) {
        const struct cn_input_shape *input = &dataset->shape.inputs[i];
        size_t words = 1;

        for (uint32_t d = 0; d < input->rank; d++)
            if (cn_size_multiply(words, input->dims[d], &words))
                return CN_ENOMEM;
        dataset->input_words[i] = words;
        dataset->sample_words += words;
    }
    return CN_OK;
}

cn_err cn_dataset_open(const struct cn_dataset_config *config, const struct cn_sample_shape *shape,
                       struct cn_diag *diag, struct cn_dataset **dataset)
{
    struct cn_dataset *opened;
    cn_err err = check_config(config, shape, diag);
    bool changed;

    *dataset = NULL;
    if (err)
        return err;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    opened->shape = *shape;
    complete_shape(&opened->shape);
    if (config->rules)
        opened->rules = *config->rules;
    opened->scale = (float)config->scale;
    opened->mean = (float)config->mean;
    cn_dataset_warn_unused(opened, &config->files);
    cn_dataset_warn_unused(opened, &config->apart);
    err = check_crop(opened, diag);
    if (!err)
        err = count_words(opened);
    if (!err)
        err = cn_dataset_gather(opened, config->shards, diag, &changed);
    opened->config.shards = NULL;
    if (!err)
        err = cn_dataset_measure(opened);
    if (err) {
        cn_dataset_close(opened);
        return err;
    }
    *dataset = opened;
    return CN_OK;
}

cn_err cn_dataset_refresh(struct cn_dataset *dataset, bool *changed)
{
    struct cn_diag diag;
    cn_err err;

    *changed = false;
    if (!cn_dataset_is_open_ended(dataset))
        return CN_OK;
    cn_diag_init(&diag);
    err = cn_dataset_gather(dataset, NULL, &diag, changed);
    if (err == CN_EFORMAT) { // nothing left to train on
        cn_log(CN_LOG_WARN, "data", "%s; the samples stay as they were", cn_diag_first(&diag));
        return CN_OK;
    }
    if (err)
        return err;
    dataset->unmeasured |= *changed; // also what an earlier call had no memory to measure
    err = dataset->unmeasured ? cn_dataset_measure(dataset) : CN_OK;
    dataset->unmeasured = err != CN_OK;
    return err;
}

void cn_dataset_close(struct cn_dataset *dataset)
{
    if (!dataset)
        return;
    cn_dataset_release(dataset);
    free(dataset->shift);
    free(dataset->factor);
    free(dataset);
}

const struct cn_data_files *cn_dataset_shards(const struct cn_dataset *dataset)
{
    return &dataset->list;
}

uint64_t cn_dataset_count(const struct cn_dataset *dataset, enum cn_split split)
{
    return dataset->counts[split];
}

// Finds the last shard with at most index samples before it. A shard without samples of the split
// has as many before it as the next one, so it is not the last.
static const struct shard *find_shard(const struct cn_dataset *dataset, enum cn_split split,
                                      uint64_t index)
{
    size_t low = 0, high = dataset->shard_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (dataset->shards[middle]->before[split] <= index)
            low = middle;
        else
            high = middle;
    }
    return dataset->shards[low];
}

// The permutation puts the held-out samples first. In file order they are the last ones. Held-out
// windows must be the last ones too, since neighbours share rows.
struct place cn_dataset_locate(const struct cn_dataset *dataset, enum cn_split split,
                               uint64_t index)
{
    const struct shard *shard = find_shard(dataset, split, index);

    index -= shard->before[split];
    if (split == CN_SPLIT_ALL || shard->held_out == 0 || shard->held_out == shard->count)
        return (struct place){shard, index};
    if (dataset->config.sequential || dataset->rules.window)
        return (struct place){
            shard, split == CN_SPLIT_TRAIN ? index : shard->count - shard->held_out + index};
    if (split == CN_SPLIT_TRAIN)
        index += shard->held_out;
    return (struct place){shard, cn_random_permute(shard->split_key, shard->count, index)};
}

void cn_dataset_train_batch(const struct cn_dataset *dataset, uint64_t index, uint32_t size,
                            struct cn_batch *batch)
{
    uint64_t count = cn_dataset_count(dataset, CN_SPLIT_TRAIN);

    assert(count > 0);
    for (uint32_t i = 0; i < size; i++) {
        uint64_t number = index * size + i; // samples drawn before this one
        uint64_t key = cn_dataset_key(dataset->config.seed, STREAM_EPOCH, number / count);
        uint64_t place = dataset->config.sequential ? number % count
                                                    : cn_random_permute(key, count, number % count);

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

struct batch_words {
    size_t inputs, labels, targets;
};

static cn_err count_batch(const struct cn_sample_shape *shape, uint32_t size,
                          struct batch_words *words)
{
    bool classes = shape->loss == CN_LOSS_CROSS_ENTROPY;
    cn_err err = input_words(shape, &words->inputs);

    if (err || cn_size_multiply(words->inputs, size, &words->inputs) ||
        cn_size_multiply(size, shape->rows, &words->labels) ||
        cn_size_multiply(size, classes ? 0 : shape->outputs, &words->targets))
        return CN_ENOMEM;
    return CN_OK;
}

uint64_t cn_batch_memory(const struct cn_sample_shape *shape, uint32_t size)
{
    struct batch_words words;

    return count_batch(shape, size, &words)
               ? 0
               : sizeof(float) * ((uint64_t)words.inputs + words.labels + words.targets);
}

cn_err cn_batch_init(const struct cn_sample_shape *shape, uint32_t size, struct cn_batch *batch)
{
    struct batch_words words;

    *batch = (struct cn_batch){0};
    if (count_batch(shape, size, &words))
        return CN_ENOMEM;
    batch->inputs = calloc(words.inputs + 1, sizeof(float));
    batch->labels = calloc(words.labels + 1, sizeof(int32_t));
    batch->targets = calloc(words.targets + 1, sizeof(float));
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
