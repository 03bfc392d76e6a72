// dataset_private.h - what the dataset*.c files share.
#pragma once

#include "runtime/engine/dataset.h"
#include "runtime/engine/source.h"

// Rows of a file that make up a part of each sample.
struct column {
    struct cn_source source;
    size_t words;  // of a sample
    size_t row;    // words of a row of the file
    size_t stride; // rows from a sample to the next
    size_t first;  // row of the first sample
    bool integers; // int32 for the device, else float32
};

struct cn_dataset {
    struct cn_sample_shape shape;
    struct cn_rules rules;
    struct column inputs[CN_INPUT_MAX];
    uint32_t input_count;
    struct column labels; // words 0: none
    float scale, mean;
    bool sequential;
    size_t sample_words; // of all inputs
    uint64_t count;      // samples
    uint64_t held_out;   // of them
    uint64_t seed;
    uint64_t split_key;
    float *shift, *factor; // owned; of each element of the first input, NULL without normalization
};

// What the random numbers of a seed are used for: the high half of the counter.
enum { STREAM_SPLIT = 1, STREAM_EPOCH = 2, STREAM_AUGMENT = 3 };

uint64_t cn_dataset_key(uint64_t seed, uint64_t stream, uint64_t number);

// Opens and checks all files; dataset->shape, rules and seed are set. Fills in columns and count.
cn_err cn_dataset_load(struct cn_dataset *dataset, const struct cn_dataset_config *config,
                       struct cn_diag *diag);

// Copies a sample to a position of a batch. draw is its number in the training order, for what is
// changed at random; UINT64_MAX for nothing.
void cn_dataset_copy(const struct cn_dataset *dataset, uint64_t sample, uint32_t position,
                     uint64_t draw, struct cn_batch *batch);

// Measures mean and deviation over the training samples.
cn_err cn_dataset_measure(struct cn_dataset *dataset);

// The file's place of sample index of a split.
uint64_t cn_dataset_locate(const struct cn_dataset *dataset, enum cn_split split, uint64_t index);
