// dataset.h - samples from files, mapped into memory (source.h names the formats).
//
// Inputs are float32 or uint8, or any integers where the model takes integers; in C order, the
// first dimension counts the samples. Labels are integers of any NumPy width, or float32 targets.
// Values of the first input become (value - mean) * scale, unless they are integers for the model.
//
// Held-out samples are never trained on. A permutation that follows from the seed chooses them.
// Where the training order is the file's, and of the windows of a series, the last ones are held
// out. Windows that share rows with held-out ones are left out.
//
// The training order is a permutation for each epoch, computed from (seed, epoch). Batch number n
// is the same in every run, so the cursor is one integer. The files must not change while the data
// set is open: replace them by renaming.
//
// A path with a * in its last part stands for many files, called shards, which may arrive while the
// data set is in use (data_files.h). Each shard is split by itself, so a sample stays on its side
// when other shards arrive.
// Threading: any threads may read batches at the same time, but none during a refresh.
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
// logged, and its file is not opened.
struct cn_dataset_file {
    const char *name;
    const char *path;
};

struct cn_dataset_files {
    const char *inputs;                          // path of the first input, unless others name it
    const char *labels;                          // NULL where the model computes its loss itself
    struct cn_dataset_file others[CN_INPUT_MAX]; // files of inputs by name
    size_t other_count;
};

// All strings are borrowed for the life of the data set.
struct cn_dataset_config {
    struct cn_dataset_files files;
    struct cn_dataset_files apart; // files of which all samples are held out; no inputs: none
    const struct cn_rules *rules;  // NULL for none
    const struct cn_data_files
        *shards; // a stored list: open exactly these; NULL for all that are present
    double scale, mean;
    double held_out; // share of each file that is held out, [0, 0.9]; 0 with files apart
    uint64_t seed;   // for the split and the order
    bool sequential; // train in file order; the last samples are held out
};

struct cn_input_shape {
    char name[64]; // as in the model, cut to fit
    bool integers; // int32, else float32
    uint32_t rank; // of one sample, without the batch
    uint64_t dims[8];
    uint64_t classes; // its values are class numbers below this; 0: any values
    int64_t ignored;  // with classes: the number that does not count
    // Its values pick rows of a table of this many: -table_rows to table_rows - 1; 0: any values.
    uint64_t table_rows;
};

// The samples that a model expects; files are checked against it.
struct cn_sample_shape {
    enum cn_loss loss;
    uint32_t rank; // of one sample of the first input, without the batch
    uint64_t dims[8];
    struct cn_input_shape inputs[CN_INPUT_MAX];
    uint32_t input_count; // 0: only the first input, described by rank, dims and integers
    bool integers;        // the first input holds whole numbers, such as tokens
    uint64_t outputs;     // cross-entropy: number of classes; else targets of a sample
    uint64_t rows;        // labels of a sample
    bool weighted;        // a sample's weight in the loss may differ from 1
};

struct cn_batch {
    float *inputs;   // samples, each with its inputs one after the other; int32 or float32
    int32_t *labels; // cross-entropy: count * rows class numbers; else unused
    float *targets;  // other losses with labels: count * outputs numbers; else unused
    uint32_t count;  // samples; the last held-out batch may be shorter than the others
};

// Allocates a batch of at most size samples. CN_ENOMEM. deinit accepts zeros.
cn_err cn_batch_init(const struct cn_sample_shape *shape, uint32_t size, struct cn_batch *batch);
void cn_batch_deinit(struct cn_batch *batch);

// Returns the bytes that cn_batch_init takes; 0 when they overflow.
uint64_t cn_batch_memory(const struct cn_sample_shape *shape, uint32_t size);

enum cn_split {
    CN_SPLIT_TRAIN,
    CN_SPLIT_HELD_OUT,
    CN_SPLIT_ALL, // every sample, in file order: for a set that is only evaluated
};

struct cn_dataset;

// Opens the files and checks every value once: dims against shape, labels in range, no NaN or
// infinity. Each mistake is a line in diag. Dims that differ from the shape are accepted where they
// only join or split neighbouring dimensions (8x8 or 64 for 1x8x8). They are refused where the
// values are in another order (8x8x3 for 3x8x8).
cn_err cn_dataset_open(const struct cn_dataset_config *config, const struct cn_sample_shape *shape,
                       struct cn_diag *diag, struct cn_dataset **dataset);
void cn_dataset_close(struct cn_dataset *dataset);

// Looks for shards that appeared or disappeared. Damaged and incomplete ones are logged and left
// out. When nothing would be left to train on, the set stays as it was. If *changed, the same batch
// number gives other samples from now on. CN_ENOMEM: call it again before the set is used.
cn_err cn_dataset_refresh(struct cn_dataset *dataset, bool *changed);

// Returns the shards in use and the refused ones; the list belongs to the data set, until a
// refresh. Plain files are one entry with the name "".
const struct cn_data_files *cn_dataset_shards(const struct cn_dataset *dataset);

// Logs each file that was written to since it was opened, and returns whether there is one. What
// was read of such a file since then may be of its old or its new content.
bool cn_dataset_has_changed(const struct cn_dataset *dataset);

// Writes the line about such a file to text, for people, and returns whether there is one.
bool cn_dataset_name_changed(const struct cn_dataset *dataset, char *text, size_t size);

// Returns whether shards may appear and disappear.
bool cn_dataset_is_open_ended(const struct cn_dataset *dataset);

// Returns the number of samples of a split.
uint64_t cn_dataset_count(const struct cn_dataset *dataset, enum cn_split split);

// Gives the mean that rules.normalize takes off each element of the first input, the factor that it
// multiplies the difference by, and the number of features (or channels) that are constant: their
// factor is 1. False without normalization, or for integers.
bool cn_dataset_normalization(const struct cn_dataset *dataset, const float **mean,
                              const float **factor, size_t *constant);

// Returns a CRC-32C over every value of all files, as read and before it is scaled, and over the
// numbers of samples. It reads each file once, from the disk if need be. Sets of another format
// have the same sum if they have the same values.
uint32_t cn_dataset_sum(const struct cn_dataset *dataset);

// Copies training batch number index into batch, which must have room for size samples. Each batch
// has exactly size samples: where an epoch ends, the samples of the next epoch follow.
void cn_dataset_train_batch(const struct cn_dataset *dataset, uint64_t index, uint32_t size,
                            struct cn_batch *batch);

// Copies samples [first, first + size) of a split into batch, fewer at the split's end;
// batch->count is their number.
void cn_dataset_range(const struct cn_dataset *dataset, enum cn_split split, uint64_t first,
                      uint32_t size, struct cn_batch *batch);
