// caps.h - limits how much one group may move a version, by the medians of its round.
//
// A forged sample count or a huge update must not dominate the mean, and no board can be asked for
// the truth. So each update is compared with the others of the same round. Trained values and
// running statistics have norms of their own, which are compared apart: the statistics of some
// models move ten times as far as the weights. All arithmetic uses whole numbers, so the set of
// updates determines the result to the bit. README.md has the rule and the attacks that it
// withstands. Pure functions. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// With fewer updates there is no majority to compare with, so nothing is capped.
#define CN_CAPS_LEAST 3

struct cn_caps_entry {
    // Samples: the accepted weight, which cn_caps_find replaces with the capped one; at least 1.
    uint64_t weight;
    uint32_t boards;  // boards enrolled in the group when the update was accepted, at least 1
    uint64_t steps;   // steps of the round that the group did; 0: it did not say
    uint64_t trained; // set by cn_normalize_find: the n of normalize.h, in parts of a sample
    // L2 norms of the trained values and of the statistics, in units of 2^-27, rounded up.
    uint64_t norm, statistics_norm;
    bool left_out;       // the norm is far above the others, so the update counts for nothing
    bool statistics_out; // that of the statistics is, so they count as unchanged
};

// Limits of the norms of trained values or of statistics, in units of 2^-27.
struct cn_caps_norms {
    uint64_t max;    // what is larger is scaled down to this; 0: no limit
    uint64_t median; // median over the updates in which it is not zero
};

struct cn_caps_result {
    struct cn_caps_norms trained, statistics;
    uint64_t board_weight; // samples that one board may count for; 0: no cap
};

// Caps the weight, and sets left_out and statistics_out of all entries; their order does not
// matter. scratch has room for count numbers. With older the norms are capped as by rule 1, in
// which fewer than three updates that are not zero have no limit.
void cn_caps_find(struct cn_caps_entry *entries, size_t count, bool older, uint64_t *scratch,
                  struct cn_caps_result *result);
