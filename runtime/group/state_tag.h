// state_tag.h - a member's description of its training state, and the choice of the state that the
// group continues with.
//
// After a split of the LAN one group has two states. The aggregator counts one update of a group in
// a round. The state that this update was made from is the counted lineage; the group continues
// with it and gives up the other state, even if that is further. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_TAG_DIGEST_SIZE 8 // first bytes of a digest

struct cn_state_tag {
    uint32_t lineage; // of the run
    uint64_t run;
    uint32_t round;
    uint32_t phase; // enum cn_phase
    uint32_t step;
    uint64_t samples; // samples of the round's steps so far
    // The newest round for which this member knows which update counts; 0: none.
    uint32_t counted_round;
    bool counted_own;                    // that update was made from this state
    uint8_t counted[CN_TAG_DIGEST_SIZE]; // digest of that update
    uint8_t frame[CN_TAG_DIGEST_SIZE];   // digest of the update in the outbox; zeros: none
};

// Returns true when two members describe the same state.
bool cn_state_tag_same(const struct cn_state_tag *a, const struct cn_state_tag *b);

// Returns the index of the tag whose state all others take; tags are in the order of the members.
// Only tags of the newest run are considered, and of those only the ones of the counted lineage, if
// there are any. The furthest (round, phase, step, samples) is chosen, then the first.
uint32_t cn_state_tag_choose(const struct cn_state_tag *const *tags, uint32_t count);
