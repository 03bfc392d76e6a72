// dataset_copy.c - copies samples from the file into a batch.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/random.h"
#include "runtime/base/words.h"
#include "runtime/engine/data/dataset_private.h"

// Returns the number of words in the file before a sample.
static size_t words_before(const struct column *column, uint64_t sample)
{
    return (column->first + (size_t)sample * column->stride) * column->row;
}

static void copy_values(const struct column *column, uint64_t sample, float *to)
{
    const struct cn_npy *npy = &column->source.array;
    size_t first = words_before(column, sample);

    if (column->integers) {
        for (size_t i = 0; i < column->words; i++) {
            int32_t value = (int32_t)cn_npy_int(npy, first + i);

            memcpy(&to[i], &value, sizeof(value));
        }
    } else if (npy->kind == CN_NPY_UINT) {
        for (size_t i = 0; i < column->words; i++)
            to[i] = (float)npy->data[first + i];
    } else {
        memcpy(to, npy->data + first * sizeof(float), column->words * sizeof(float));
    }
}

static void normalize(const struct cn_dataset *dataset, float *values)
{
    float scale = dataset->scale, mean = dataset->mean;
    size_t words = dataset->input_words[0];

    for (size_t i = 0; dataset->shift && i < words; i++)
        values[i] = (values[i] - dataset->shift[i]) * dataset->factor[i];
    for (size_t i = 0; i < words; i++)
        values[i] = (values[i] - mean) * scale;
}

// Random numbers of one sample. They follow from (seed, draw), so a restart makes the same ones.
struct stream {
    uint64_t key, at;
    uint32_t block[4];
};

static uint32_t next_number(struct stream *stream)
{
    if (stream->at % 4 == 0)
        cn_random_block(stream->key, STREAM_AUGMENT, stream->at / 4, stream->block);
    return stream->block[stream->at++ % 4];
}

// Exchanges left and right if asked, then moves a plane by (dy, dx) and fills with zeros.
static void move_plane(float *plane, size_t height, size_t width, bool flip, int64_t dy, int64_t dx)
{
    for (size_t y = 0; flip && y < height; y++)
        for (size_t x = 0; x < width / 2; x++) {
            float *a = &plane[y * width + x], *b = &plane[y * width + width - 1 - x], c = *a;

            *a = *b;
            *b = c;
        }
    if (!dy && !dx)
        return;
    // Goes in the direction in which no value is overwritten before it was read.
    for (size_t i = 0; i < height * width; i++) {
        size_t at = dy > 0 || (dy == 0 && dx > 0) ? height * width - 1 - i : i;
        int64_t y = (int64_t)(at / width) - dy, x = (int64_t)(at % width) - dx;
        bool inside = y >= 0 && y < (int64_t)height && x >= 0 && x < (int64_t)width;

        plane[at] = inside ? plane[y * (int64_t)width + x] : 0;
    }
}

static void move_image(const struct cn_dataset *dataset, struct stream *stream, float *values)
{
    const struct cn_input_shape *shape = &dataset->shape.inputs[0];
    uint32_t crop = dataset->rules.crop, rank = shape->rank;
    bool flip = dataset->rules.flip && next_number(stream) >> 31;
    int64_t dy = crop ? (int64_t)(next_number(stream) % (2 * crop + 1)) - crop : 0;
    int64_t dx = crop ? (int64_t)(next_number(stream) % (2 * crop + 1)) - crop : 0;
    size_t height, width;

    if (rank < 2)
        return;
    height = shape->dims[rank - 2];
    width = shape->dims[rank - 1];
    for (size_t at = 0; at < dataset->input_words[0]; at += height * width)
        move_plane(values + at, height, width, flip, dy, dx);
}

// The sum of four uniform numbers is close enough to a normal one, and needs no libm.
static void add_noise(const struct cn_dataset *dataset, struct stream *stream, float *values)
{
    float deviation =
        (float)dataset->rules.noise * 1.7320508f; // of the sum it is sqrt(4 / 12) = 1 / 1.732

    for (size_t i = 0; i < dataset->input_words[0]; i++) {
        float sum = -2;

        for (int j = 0; j < 4; j++)
            sum += (float)(next_number(stream) >> 8) * 0x1p-24f;
        values[i] += deviation * sum;
    }
}

static void change_at_random(const struct cn_dataset *dataset, uint64_t draw, float *values)
{
    struct stream stream = {.key = cn_dataset_key(dataset->config.seed, STREAM_AUGMENT, draw)};

    if (dataset->rules.flip || dataset->rules.crop)
        move_image(dataset, &stream, values);
    if (dataset->rules.noise > 0)
        add_noise(dataset, &stream, values);
}

static bool is_class(const struct cn_dataset *dataset, int64_t label)
{
    return label >= 0 && (uint64_t)label < dataset->shape.outputs;
}

static int32_t class_of(const struct cn_dataset *dataset, const struct column *labels, size_t index)
{
    int64_t label = cn_npy_int(&labels->source.array, index);

    // Labels out of range are ignored ones, as load has checked; a class may be ignored too.
    if (dataset->rules.ignore[0]) {
        char text[24];

        snprintf(text, sizeof(text), "%" PRId64, label);
        if (cn_words_match(dataset->rules.ignore, text))
            return CN_LABEL_IGNORED;
    }
    // The file was checked, but may have been written to since (cn_dataset_has_changed).
    return is_class(dataset, label) ? (int32_t)label : CN_LABEL_IGNORED;
}

static void copy_labels(const struct cn_dataset *dataset, struct place place, uint32_t position,
                        struct cn_batch *batch)
{
    const struct column *labels = &place.shard->labels;
    size_t first = words_before(labels, place.sample), outputs = dataset->shape.outputs;

    if (dataset->shape.loss == CN_LOSS_CROSS_ENTROPY) {
        for (size_t i = 0; i < labels->words; i++)
            batch->labels[position * labels->words + i] = class_of(dataset, labels, first + i);
    } else if (dataset->rules.one_hot) {
        float *row = batch->targets + position * outputs;
        int64_t label = cn_npy_int(&labels->source.array, first);

        memset(row, 0, outputs * sizeof(*row));
        if (is_class(dataset, label))
            row[label] = 1;
    } else {
        memcpy(batch->targets + position * outputs,
               labels->source.array.data + first * sizeof(float), outputs * sizeof(float));
    }
}

void cn_dataset_copy(const struct cn_dataset *dataset, struct place place, uint32_t position,
                     uint64_t draw, struct cn_batch *batch)
{
    float *to = batch->inputs + position * dataset->sample_words;

    for (uint32_t i = 0; i < dataset->shape.input_count; i++) {
        copy_values(&place.shard->inputs[i], place.sample, to);
        if (i == 0 && !dataset->shape.inputs[0].integers) {
            normalize(dataset, to);
            if (draw != UINT64_MAX)
                change_at_random(dataset, draw, to);
        }
        to += dataset->input_words[i];
    }
    if (place.shard->labels.words)
        copy_labels(dataset, place, position, batch);
}

#define CONSTANT 1e-6 // deviation below which a feature is constant, as a share of its mean

// Sums over the training samples, for each group of `share` neighbouring elements: of the values,
// or of the squares of their distance from the means.
static void add_up(struct cn_dataset *dataset, size_t share, const double *means, float *row,
                   double *sums)
{
    size_t words = dataset->input_words[0];
    uint64_t samples = cn_dataset_count(dataset, CN_SPLIT_TRAIN);

    for (uint64_t n = 0; n < samples; n++) {
        struct place place = cn_dataset_locate(dataset, CN_SPLIT_TRAIN, n);

        copy_values(&place.shard->inputs[0], place.sample, row);
        for (size_t i = 0; i < words; i++) {
            double value = (double)row[i] - (means ? means[i / share] : 0);

            sums[i / share] += means ? value * value : value;
        }
    }
}

// Computes shift and factor. A constant feature has no deviation to divide by: its factor is 1.
static void finish_statistics(struct cn_dataset *dataset, size_t share, const double *means,
                              const double *squares, double count)
{
    size_t words = dataset->input_words[0];

    dataset->constant = 0;
    for (size_t i = 0; i < words; i++) {
        double mean = means[i / share], deviation = sqrt(squares[i / share] / count);
        bool constant = !(deviation > CONSTANT * fabs(mean));

        dataset->shift[i] = (float)mean;
        dataset->factor[i] = constant ? 1 : (float)(1 / deviation);
        dataset->constant += constant && i % share == 0;
    }
}

cn_err cn_dataset_measure(struct cn_dataset *dataset)
{
    size_t words = dataset->input_words[0], share = 1;
    double count, *means, *squares;
    float *row;
    cn_err err = CN_ENOMEM;

    if (dataset->rules.normalize == CN_NORMALIZE_NONE || dataset->shape.inputs[0].integers)
        return CN_OK;
    if (dataset->rules.normalize == CN_NORMALIZE_CHANNEL)
        share = words / dataset->shape.inputs[0].dims[0];
    count = (double)cn_dataset_count(dataset, CN_SPLIT_TRAIN) * (double)share;
    row = calloc(words, sizeof(*row));
    means = calloc(words / share, sizeof(*means));
    squares = calloc(words / share, sizeof(*squares));
    if (!dataset->shift)
        dataset->shift = calloc(words, sizeof(float));
    if (!dataset->factor)
        dataset->factor = calloc(words, sizeof(float));
    if (row && means && squares && dataset->shift && dataset->factor) {
        add_up(dataset, share, NULL, row, means);
        for (size_t i = 0; i < words / share; i++)
            means[i] /= count;
        add_up(dataset, share, means, row, squares);
        finish_statistics(dataset, share, means, squares, count);
        err = CN_OK;
    }
    free(row);
    free(means);
    free(squares);
    return err;
}

bool cn_dataset_normalization(const struct cn_dataset *dataset, const float **mean,
                              const float **factor, size_t *constant)
{
    *mean = dataset->shift;
    *factor = dataset->factor;
    *constant = dataset->constant;
    return dataset->shift != NULL;
}
