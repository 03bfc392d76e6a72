// trial_split.h - divides the rows of a data set among the boards of a trial.
//
// A division depends only on its settings and the labels, so a call has the same result on every
// machine. Threading: no shared state.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"

#define CN_TRIAL_BOARDS_MAX 64
#define CN_TRIAL_LABELS_MAX 10000   // different labels of a data set that is divided by them
#define CN_TRIAL_CENTRAL UINT32_MAX // owner of a row that the gateway measures versions with

enum cn_trial_split_kind {
    CN_TRIAL_IID,       // each board has rows of all kinds
    CN_TRIAL_LABELS,    // each label belongs to one group
    CN_TRIAL_DIRICHLET, // each label is dealt to the groups in random shares (Hsu et al., 2019)
};

struct cn_trial_split {
    enum cn_trial_split_kind kind;
    uint32_t boards, groups; // at least one board for each group
    double alpha;            // Dirichlet: 0.01 to 1000; the smaller, the more unequal
    uint64_t seed;
    bool shared; // data.scope of the job: the boards of a group have the same rows
};

// Returns the group of a board. A group has consecutive boards, and the sizes of groups differ by
// at most one.
uint32_t cn_trial_group(const struct cn_trial_split *split, uint32_t board);

// Returns the first board of a group; for group = groups, the number of boards.
uint32_t cn_trial_first_board(const struct cn_trial_split *split, uint32_t group);

// The owners of rows are the boards, or with shared the groups, numbered from 0. Return the number
// of owners, and the owner whose rows a board has.
uint32_t cn_trial_owners(const struct cn_trial_split *split);
uint32_t cn_trial_owner(const struct cn_trial_split *split, uint32_t board);

// Writes the name of an owner: "board-3", or "group-2" with shared.
#define CN_TRIAL_OWNER_SIZE 24
void cn_trial_owner_name(const struct cn_trial_split *split, uint32_t owner,
                         char name[CN_TRIAL_OWNER_SIZE]);

// Marks all rows as not given yet. With hold_out, gives one row of ten, drawn by the seed, to the
// gateway.
void cn_trial_hold_out(uint64_t seed, bool hold_out, size_t rows, uint32_t *owners);

// Gives each row that the gateway does not have to an owner. labels has a label for each row; NULL
// with CN_TRIAL_IID. Returns CN_EINVAL with a line in diag when an owner would get no row, there
// are more than CN_TRIAL_LABELS_MAX labels, or with CN_TRIAL_LABELS fewer than groups; or
// CN_ENOMEM.
cn_err cn_trial_divide(const struct cn_trial_split *split, const int64_t *labels, size_t rows,
                       uint32_t *owners, struct cn_diag *diag);
