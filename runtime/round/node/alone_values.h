// alone_values.h - what the stored state of training alone was trained with, for people.
//
// The number of the run says whether a state is of these values; this file says which of them
// differ. It is the file "values" of the state directory: lines of "NAME: VALUE".
// Threading: one thread.
#pragma once

#include <stdbool.h>

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"

struct cn_alone_values {
    char *text; // owned; NULL when nothing is known
};

void cn_alone_values_deinit(struct cn_alone_values *values);

// What a run is begun with. from: the weights are those of another file than the job's model.
cn_err cn_alone_values_describe(const struct cn_settings *settings, bool sequential,
                                const uint8_t graph[CN_DIGEST_SIZE],
                                const uint8_t weights[CN_DIGEST_SIZE],
                                struct cn_alone_values *values);

// Adds or replaces a line.
cn_err cn_alone_values_set(struct cn_alone_values *values, const char *name, const char *value);

// Copies the value of a line. False when there is none, or it does not fit.
bool cn_alone_values_get(const struct cn_alone_values *values, const char *name, char *value,
                         size_t size);

// Reads the stored file. Without one, or with one that cannot be used, nothing is known.
void cn_alone_values_load(struct cn_store *store, struct cn_alone_values *values);

// Stores values, unless stored are the same.
cn_err cn_alone_values_save(struct cn_store *store, const struct cn_alone_values *stored,
                            const struct cn_alone_values *values);

// Adds a line for each value that is another one than that of stored. Returns their number.
size_t cn_alone_values_compare(const struct cn_alone_values *stored,
                               const struct cn_alone_values *values, struct cn_diag *diag);
