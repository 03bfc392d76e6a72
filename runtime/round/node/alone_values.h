// alone_values.h - the values with which the stored state of training alone was trained.
//
// The number of the run shows whether a state belongs to given values. These values tell people
// which of them differ. They are the file "values" in the state directory, with lines of
// "NAME: VALUE". Threading: one thread.
#pragma once

#include <stdbool.h>

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"

struct cn_alone_values {
    char *text; // the lines; owned; NULL when nothing is known
};

// Frees the lines.
void cn_alone_values_deinit(struct cn_alone_values *values);

// Writes the values that a run begins with: settings, order of samples, and the digests of the
// model's graph and weights.
cn_err cn_alone_values_describe(const struct cn_settings *settings, bool sequential,
                                const uint8_t graph[CN_DIGEST_SIZE],
                                const uint8_t weights[CN_DIGEST_SIZE],
                                struct cn_alone_values *values);

// Adds or replaces a line.
cn_err cn_alone_values_set(struct cn_alone_values *values, const char *name, const char *value);

// Copies the value of a line. Returns false when there is no such line or the value does not fit.
bool cn_alone_values_get(const struct cn_alone_values *values, const char *name, char *value,
                         size_t size);

// Reads the stored file. Sets text to NULL when there is none or it cannot be used.
void cn_alone_values_load(struct cn_store *store, struct cn_alone_values *values);

// Stores values, unless they equal stored.
cn_err cn_alone_values_save(struct cn_store *store, const struct cn_alone_values *stored,
                            const struct cn_alone_values *values);

// Adds a line to diag for each value that differs from the stored one. Returns their number.
size_t cn_alone_values_compare(const struct cn_alone_values *stored,
                               const struct cn_alone_values *values, struct cn_diag *diag);
