// dataset.h - samples from files, mapped into memory (source.h names the formats).
//
// Inputs are float32 or uint8, or any integers where the model takes integers, C order, first
// dimension = samples; labels are integers of any NumPy
// width or float32 targets. Format: NEP 1 (numpy.org/neps/nep-0001-npy-format.html). A sample is
// (value - mean) * scale. Held-out samples are chosen by a permutation of the seed and are never
// trained on; of the windows of a series they are the last ones, and those that share rows with
// them are left out. Training order is a permutation for each epoch, computed from (seed, epoch):
// batch number n is the same in every run, so the cursor is one integer. The files must not change
// while the data set is open: replace them by renaming.
//
// A path with a * in its last part stands for many files, shards, which may come while the data set
// is in use (shards.h). Each shard is split by itself, so that a sample stays on its side when
// others come.
// Threading: any threads may read batches at the same time; nobody during a refresh.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"
#include "runtime/engine/data/data_files.h"
#include "runtime/profile/job.h"

#define CN_INPUT_MAX 8

// The file of an input of the model, by the input's name. A name that the model does not have is
// logged and its file left alone.
struct cn_dataset_file {
    const char *name;
    const char *path;
};

struct cn_dataset_files {
    const char *inputs;                          // path; of the first input, where none is named
    const char *labels;                          // NULL where the model computes its loss itself
    struct cn_dataset_file others[CN_INPUT_MAX]; // of inputs by name
    size_t other_count;
};

// All strings are borrowed for the life of the data set.
struct cn_dataset_config {
    struct cn_dataset_files files;
    struct cn_dataset_files apart; // whole files that are held out; without inputs: none
    const struct cn_rules *rules;  // NULL for none
    const struct cn_data_files
        *shards; // to take these only, as they were; NULL for all that are there
    double scale, mean;
    double held_out; // share of each file, [0, 0.9]; 0 with files apart
    uint64_t seed;   // of the split and the order
    bool sequential; // file order; the last samples are held out
};

struct cn_input_shape {
    char name[64]; // as in the model; cut
    bool integers; // int32, else float32
    uint32_t rank; // dims of one sample, without the batch
    uint64_t dims[8];
};

// What the model wants, for checking.
struct cn_sample_shape {
    enum cn_loss loss;
    uint32_t rank; // dims of one sample of the first input, without the batch
    uint64_t dims[8];
    struct cn_input_shape inputs[CN_INPUT_MAX];
    uint32_t input_count; // 0: only the first, with rank and dims
    bool integers;        // the first input is of whole numbers, such as tokens
    uint64_t outputs;     // elements of one output: classes, or targets
    uint64_t rows;        // labels of a sample, of so many classes each
    bool weighted;        // samples count other than 1 each in the loss
};

struct cn_batch {
    float *inputs;   // samples; of each the inputs one after the other, int32 or float32
    int32_t *labels; // cross-entropy: count * rows class numbers
    float *targets;  // else: count * outputs
    uint32_t count;  // samples; a last held-out batch may be shorter
};

// Takes the memory of a batch of at most size samples; deinit accepts zeros.
cn_err cn_batch_init(const struct cn_sample_shape *shape, uint32_t size, struct cn_batch *batch);
void cn_batch_deinit(struct cn_batch *batch);

// Bytes of such a batch; 0 when they cannot be counted.
uint64_t cn_batch_memory(const struct cn_sample_shape *shape, uint32_t size);

enum cn_split {
    CN_SPLIT_TRAIN,
    CN_SPLIT_HELD_OUT,
    CN_SPLIT_ALL, // every sample, in file order: for a set that is only evaluated
};

struct cn_dataset;

// Checks everything once: shapes against shape, labels in range, no NaN or infinity. A sample whose
// dims differ from the shape is accepted where they only join or split its neighbours (8x8 or 64
// for 1x8x8), and refused where its values are in another order (8x8x3 for 3x8x8).
cn_err cn_dataset_open(const struct cn_dataset_config *config, const struct cn_sample_shape *shape,
                       struct cn_diag *diag, struct cn_dataset **dataset);
void cn_dataset_close(struct cn_dataset *dataset);

// Looks for shards that came or went. Damaged and incomplete ones are logged and left out. On an
// error, or when nothing would be left to train on, the set stays as it was. Batches of the same
// number are others afterwards if *changed.
cn_err cn_dataset_refresh(struct cn_dataset *dataset, bool *changed);

// The shards in use, and those that were refused. Plain files have no name.
const struct cn_data_files *cn_dataset_shards(const struct cn_dataset *dataset);

// Logs each file that was written to since it was opened, and returns whether there is one. What
// was read of it since then may be of neither content.
bool cn_dataset_has_changed(const struct cn_dataset *dataset);

// Whether shards may come and go.
bool cn_dataset_is_open_ended(const struct cn_dataset *dataset);

uint64_t cn_dataset_count(const struct cn_dataset *dataset, enum cn_split split);

// Training batch number index, always size samples (an epoch's end wraps into the next
// permutation).
void cn_dataset_train_batch(const struct cn_dataset *dataset, uint64_t index, uint32_t size,
                            struct cn_batch *batch);

// Samples [first, first + size) of a split, fewer at its end; batch->count says how many.
void cn_dataset_range(const struct cn_dataset *dataset, enum cn_split split, uint64_t first,
                      uint32_t size, struct cn_batch *batch);
