// caps.h - limits how much one group may move a version, by the medians of its round.
//
// A forged sample count or a huge update must not dominate the mean, and no board can be asked for
// the truth. So each update is compared with the others of the same round. All arithmetic uses
// whole numbers, so the set of updates determines the result to the bit. README.md has the rule and
// the attacks that it withstands. Pure functions. Threading: none.
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
    uint64_t norm;    // L2 norm of the update in units of 2^-27, rounded up
    bool left_out;    // the norm is far above the others, so the update counts for nothing
};

struct cn_caps_result {
    // Limit for the norm of each update, in units of 2^-27; larger updates are scaled down; 0: no
    // limit.
    uint64_t norm_max;
    uint64_t norm_median;  // median over the updates that are not zero, in units of 2^-27
    uint64_t board_weight; // samples that one board may count for; 0: no cap
};

// Caps the weight and sets left_out of all entries; their order does not matter. scratch has room
// for count numbers.
void cn_caps_find(struct cn_caps_entry *entries, size_t count, uint64_t *scratch,
                  struct cn_caps_result *result);
