// sweep_space.h - which values a sweep tries: all combinations of lists, or seeded draws.
//
// A sweep changes keys of a job. A key has a list of values or a range. Without draws there is a
// trial for each combination of the lists. With draws each trial takes a random value of each range
// and of each list; the same seed gives the same values everywhere. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"

#define CN_SWEEP_TRIALS_MAX 243
#define CN_SWEEP_KEYS_MAX 8
#define CN_SWEEP_VALUES_MAX 32 // of a list
#define CN_SWEEP_PATH_SIZE 48
#define CN_SWEEP_VALUE_SIZE 32
#define CN_SWEEP_NAME_SIZE 24 // "trial-243"

struct cn_sweep_key {
    char path[CN_SWEEP_PATH_SIZE]; // in a job file: "train.learning_rate"
    uint32_t count;                // values of the list; 0: a range
    char values[CN_SWEEP_VALUES_MAX][CN_SWEEP_VALUE_SIZE];
    double low, high; // bounds of the range
    bool logarithmic; // the logarithm is drawn evenly
    bool whole;       // the key takes whole numbers
};

struct cn_sweep_space {
    struct cn_sweep_key keys[CN_SWEEP_KEYS_MAX];
    uint32_t count;
    uint32_t draws; // trials; 0: all combinations
    uint64_t seed;
    uint32_t trials; // set by cn_sweep_space_check
};

// Adds a key with a list, "KEY=VALUE,VALUE,...", or with a range, "KEY=LOW..HIGH". Returns
// CN_EINVAL with a line in diag.
cn_err cn_sweep_space_add_list(struct cn_sweep_space *space, const char *text,
                               struct cn_diag *diag);
cn_err cn_sweep_space_add_range(struct cn_sweep_space *space, const char *text, bool logarithmic,
                                struct cn_diag *diag);

// Checks what belongs together and counts the trials. Returns CN_EINVAL with a line in diag.
cn_err cn_sweep_space_check(struct cn_sweep_space *space, struct cn_diag *diag);

// Writes the value of a key in a trial, counted from 0.
void cn_sweep_space_value(const struct cn_sweep_space *space, uint32_t trial, uint32_t key,
                          char value[CN_SWEEP_VALUE_SIZE]);

// Writes the values of a trial: "train.learning_rate=0.1 server.optimizer=fedadam".
#define CN_SWEEP_VALUES_SIZE (CN_SWEEP_KEYS_MAX * (CN_SWEEP_PATH_SIZE + CN_SWEEP_VALUE_SIZE + 1))
void cn_sweep_space_values(const struct cn_sweep_space *space, uint32_t trial,
                           char text[CN_SWEEP_VALUES_SIZE]);

// Writes what makes the trials, a line each, to be compared with that of an earlier start.
#define CN_SWEEP_SPACE_SIZE                                                                        \
    (CN_SWEEP_KEYS_MAX *                                                                           \
         (CN_SWEEP_PATH_SIZE + 80 + CN_SWEEP_VALUES_MAX * (CN_SWEEP_VALUE_SIZE + 1)) +             \
     80)
void cn_sweep_space_describe(const struct cn_sweep_space *space, char text[CN_SWEEP_SPACE_SIZE]);

// Writes the name of a trial, counted from 0: "trial-1".
void cn_sweep_name(uint32_t trial, char name[CN_SWEEP_NAME_SIZE]);
