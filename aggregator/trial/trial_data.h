// trial_data.h - the samples that a trial divides among its boards.
#pragma once

#include "aggregator/trial/trial_split.h"
#include "runtime/engine/data/source.h"

// Rows of one pair of files.
struct cn_trial_piece {
    struct cn_source inputs, labels;
    size_t rows;
};

// Rows of all pairs of files that two paths name, in the order of the files' names.
struct cn_trial_data {
    struct cn_trial_piece *pieces; // owned; at least one
    size_t count;
    size_t rows;
};

// Opens the files of inputs and labels; a * in both paths stands for several files (data_files.h).
// On an error, the lines in diag name file and problem. Call deinit in any case.
cn_err cn_trial_data_open(struct cn_trial_data *data, const char *inputs, const char *labels,
                          struct cn_diag *diag);
void cn_trial_data_deinit(struct cn_trial_data *data);

// Checks that rows of other have the types and shapes of those of data: one model reads both. On an
// error, the lines in diag name the difference.
cn_err cn_trial_data_compare(const struct cn_trial_data *data, const struct cn_trial_data *other,
                             struct cn_diag *diag);

// Returns whether the labels are whole numbers, one for each row.
bool cn_trial_data_has_classes(const struct cn_trial_data *data);
// Returns whether the labels are whole numbers.
bool cn_trial_data_has_integers(const struct cn_trial_data *data);

// Sets *labels to an array of the rows' labels, owned by the caller. Call it only if
// cn_trial_data_has_classes.
cn_err cn_trial_data_labels(const struct cn_trial_data *data, int64_t **labels);

// Writes the rows of an owner to PATH-inputs.npy and PATH-labels.npy. With owners NULL, all rows.
cn_err cn_trial_data_write(const struct cn_trial_data *data, const uint32_t *owners, uint32_t owner,
                           const char *path, struct cn_diag *diag);
