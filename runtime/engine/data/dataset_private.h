// dataset_private.h - what the dataset*.c files share.
#pragma once

#include "runtime/engine/data/dataset.h"
#include "runtime/engine/data/source.h"

// A file with one input, or the labels, of all samples of a shard. A word is one value: an element
// of the array, 4 bytes in a batch.
struct column {
    struct cn_source source;
    size_t words;  // words of a sample
    size_t row;    // words of a row of the file
    size_t stride; // rows from one sample to the next
    size_t first;  // row of the first sample
    bool integers; // int32 for the device, else float32
};

// The files of a plain set, or the files of one name that a * stands for.
struct shard {
    struct cn_data_file entry;
    struct column inputs[CN_INPUT_MAX];
    uint32_t input_count;
    struct column labels; // words is 0 without labels
    uint64_t split_key;   // key of the permutation that chooses held-out samples
    uint64_t count;       // samples
    uint64_t held_out;    // samples that are held out
    uint64_t gap;         // windows that are in no split, as they share rows with held-out ones
    uint64_t before[3];   // by enum cn_split: samples of the shards before this one
};

struct cn_dataset {
    struct cn_dataset_config config;
    struct cn_sample_shape shape;
    struct cn_rules rules;
    float scale, mean;
    size_t sample_words;              // words of all inputs of a sample
    size_t input_words[CN_INPUT_MAX]; // words of each input of a sample
    struct cn_data_files list;        // all entries in order, refused ones too
    struct shard **shards;            // owned; the list without the refused ones
    size_t shard_count;
    uint64_t counts[3]; // by enum cn_split: number of samples
    // Normalization, by element of the first input: (value - shift) * factor, before mean and
    // scale. Owned; NULL without normalization.
    float *shift, *factor;
    size_t constant; // features, or channels, that are the same in all samples
    bool unmeasured; // shift and factor are not yet those of the shards
};

// A sample of a shard.
struct place {
    const struct shard *shard;
    uint64_t sample;
};

// Streams of random numbers of one seed: the high half of the counter.
enum { STREAM_SPLIT = 1, STREAM_EPOCH = 2, STREAM_AUGMENT = 3 };

// Returns random number `number` of a stream.
uint64_t cn_dataset_key(uint64_t seed, uint64_t stream, uint64_t number);

// Opens and checks all files of a shard; dataset->shape and dataset->rules must be set. Fills in
// the columns and count. After an error the caller must close the shard as well.
cn_err cn_dataset_load(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                       struct cn_diag *diag, struct shard *shard);

// Logs the files whose input names the model does not have.
void cn_dataset_warn_unused(const struct cn_dataset *dataset, const struct cn_dataset_files *files);

// Replaces the shards by those that are present now, or by the given list if it is not NULL. A
// mistake in a plain file is an error with a line in diag. A mistake in a shard is logged, and the
// shard is left out. On an error nothing changes.
cn_err cn_dataset_gather(struct cn_dataset *dataset, const struct cn_data_files *given,
                         struct cn_diag *diag, bool *changed);
void cn_dataset_release(struct cn_dataset *dataset);

// Copies a sample to a position of a batch. draw is its number in the training order, from which
// random changes are made; UINT64_MAX makes none.
void cn_dataset_copy(const struct cn_dataset *dataset, struct place place, uint32_t position,
                     uint64_t draw, struct cn_batch *batch);

// Computes dataset->shift and factor from mean and deviation of the training samples, where the
// rules ask for normalization. CN_ENOMEM.
cn_err cn_dataset_measure(struct cn_dataset *dataset);

// Returns the place of sample number index of a split.
struct place cn_dataset_locate(const struct cn_dataset *dataset, enum cn_split split,
                               uint64_t index);
