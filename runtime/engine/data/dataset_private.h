// dataset_private.h - what the dataset*.c files share.
#pragma once

#include "runtime/engine/data/dataset.h"
#include "runtime/engine/data/source.h"

// Rows of a file that make up a part of each sample.
struct column {
    struct cn_source source;
    size_t words;  // of a sample
    size_t row;    // words of a row of the file
    size_t stride; // rows from a sample to the next
    size_t first;  // row of the first sample
    bool integers; // int32 for the device, else float32
};

// The files of a plain set, or those of one name that a * stands for.
struct shard {
    struct cn_data_file entry;
    struct column inputs[CN_INPUT_MAX];
    uint32_t input_count;
    struct column labels; // words 0: none
    uint64_t split_key;
    uint64_t count;     // samples
    uint64_t held_out;  // of them
    uint64_t gap;       // of them: windows with rows of both sides
    uint64_t before[3]; // samples of the shards before this one, for each enum cn_split
};

struct cn_dataset {
    struct cn_dataset_config config;
    struct cn_sample_shape shape;
    struct cn_rules rules;
    float scale, mean;
    size_t sample_words; // of all inputs
    size_t input_words[CN_INPUT_MAX];
    struct cn_data_files list; // in order, refused ones too
    struct shard **shards;     // owned; of the list without the refused ones
    size_t shard_count;
    uint64_t counts[3];    // for each enum cn_split
    float *shift, *factor; // owned; of each element of the first input, NULL without normalization
};

// A sample and where it lies.
struct place {
    const struct shard *shard;
    uint64_t sample;
};

// What the random numbers of a seed are used for: the high half of the counter.
enum { STREAM_SPLIT = 1, STREAM_EPOCH = 2, STREAM_AUGMENT = 3 };

uint64_t cn_dataset_key(uint64_t seed, uint64_t stream, uint64_t number);

// Samples of a shard that are trained on.
uint64_t cn_dataset_trained(const struct shard *shard);

// Opens and checks all files of a shard; dataset->shape and rules are set. Fills in columns and
// count. On an error the shard is to be closed as well.
cn_err cn_dataset_load(const struct cn_dataset *dataset, const struct cn_dataset_files *files,
                       struct cn_diag *diag, struct shard *shard);

// Logs the files of a map of inputs whose names the model does not have.
void cn_dataset_warn_unused(const struct cn_dataset *dataset, const struct cn_dataset_files *files);

// Opens what is there instead of what was, or the list of the config. On an error nothing changes:
// a mistake in a plain file is a line in diag, one in a shard is logged and the shard left out.
cn_err cn_dataset_gather(struct cn_dataset *dataset, const struct cn_data_files *given,
                         struct cn_diag *diag, bool *changed);
void cn_dataset_release(struct cn_dataset *dataset);

// Copies a sample to a position of a batch. draw is its number in the training order, for what is
// changed at random; UINT64_MAX for nothing.
void cn_dataset_copy(const struct cn_dataset *dataset, struct place place, uint32_t position,
                     uint64_t draw, struct cn_batch *batch);

// Measures mean and deviation over the training samples.
cn_err cn_dataset_measure(struct cn_dataset *dataset);

// Sample index of a split.
struct place cn_dataset_locate(const struct cn_dataset *dataset, enum cn_split split,
                               uint64_t index);
