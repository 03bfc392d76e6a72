// caps.h - how much one group may move a version, by the medians of its round.
//
// A forged sample count or a huge update must not own the mean, and no board can be asked for the
// truth. So each update is compared with the others of the same round, in whole numbers only: the
// result follows from the set of updates, to the bit. README.md has the rule and what it holds.
// Pure functions. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// With fewer updates there is no majority to compare with, and no cap.
#define CN_CAPS_LEAST 3

struct cn_caps_entry {
    uint64_t weight; // samples: as accepted, then as capped; at least 1
    uint32_t boards; // enrolled in the group when the update was accepted, at least 1
    uint64_t norm;   // L2 norm of the update in units of 2^-27, rounded up
    bool left_out;   // its norm stands far above those of the others: it counts for nothing
};

struct cn_caps_result {
    uint64_t norm_max;    // of each update, in units of 2^-27; larger ones are scaled down; 0: none
    uint64_t norm_median; // of the round's updates that are not zero
    uint64_t board_weight; // samples that a board may count for; 0: no cap
};

// Sets weight and left_out of all entries; their order does not matter. scratch has count numbers.
void cn_caps_find(struct cn_caps_entry *entries, size_t count, uint64_t *scratch,
                  struct cn_caps_result *result);
