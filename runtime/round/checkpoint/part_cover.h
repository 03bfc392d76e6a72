// part_cover.h - decides which stored parts make a state. Threading: none; pure.
#pragma once

#include <stdint.h>

#include "runtime/round/checkpoint/part_file.h"

#define CN_PART_OFFERS (CN_STORED_FILES * CN_STORED_SLOTS) // most files of one member

// A stored part that a member has and that fits the state which all members hold.
struct cn_part_offer {
    uint64_t state; // cn_part_state; 0: no offer
    uint64_t epoch; // in which it was stored
    uint32_t step, parts, part;
};

// A state of which all parts are offered.
struct cn_part_choice {
    uint64_t state; // 0: none
    uint64_t epoch;
    uint32_t step, parts;
    uint32_t ranks[CN_CUT_PARTS_MAX]; // by part: the member that gives it
    uint32_t files[CN_CUT_PARTS_MAX]; // by part: index of that member's offer
};

// Chooses the state with the most steps of which each part is offered by a member; of equal ones
// that of the newest epoch. Parts of two states are never put together. Of several members that
// offer a part the first gives it. All members choose alike from the same offers.
void cn_part_choose(const struct cn_part_offer (*offers)[CN_PART_OFFERS], uint32_t members,
                    struct cn_part_choice *choice);
