// state_tag.h - what a member says of its training state, and whose state a group goes on with.
//
// A LAN that was split has two states of one group. The aggregator counts one update of a group in
// a round, and that one says which of them is the group's: the counted lineage. All of the other is
// given up, also where it is further. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_TAG_DIGEST_SIZE 8 // the beginning of a digest

struct cn_state_tag {
    uint32_t lineage; // of the run
    uint64_t run;
    uint32_t round;
    uint32_t phase; // enum cn_phase
    uint32_t step;
    uint64_t samples; // of the round's steps
    // The newest round of which this member knows the update that counts; 0: none.
    uint32_t counted_round;
    bool counted_own; // it was made of this state
    uint8_t counted[CN_TAG_DIGEST_SIZE];
    uint8_t frame[CN_TAG_DIGEST_SIZE]; // of this round, waiting to be counted; zeros: none
};

// Whether two members say the same of their states.
bool cn_state_tag_same(const struct cn_state_tag *a, const struct cn_state_tag *b);

// Index of the tag whose state all others take, of count in the order of the members: of the newest
// run, of the lineage that was counted last where one of them has it, then the one that is furthest
// (round, phase, step, samples), then the first.
uint32_t cn_state_tag_choose(const struct cn_state_tag *const *tags, uint32_t count);
