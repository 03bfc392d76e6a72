// round.h - decides what a group does next in a round.
//
//   EMPTY --fetch--> BASE --begin--> TRAIN --steps--> SEND --decide--> BASE
//
// The inputs are the board's state (phase, round and base of its checkpoint) and the aggregator's
// last news. Late and repeated news is normal on a lossy link: news older than the board's state
// changes nothing. These functions use no clock, network or memory of their own. Threading: none;
// pure.
#pragma once

#include "runtime/port/link.h"
#include "runtime/round/checkpoint/checkpoint.h"

enum cn_round_action {
    CN_DO_WAIT,    // nothing to do until there is news
    CN_DO_RESET,   // another run: discard the state of this one
    CN_DO_FETCH,   // get the version that the aggregator names
    CN_DO_BEGIN,   // start the round: weights = base
    CN_DO_STEP,    // continue training
    CN_DO_ABANDON, // the round ended without this group: uses decision
    CN_DO_SEND,    // deliver the outbox
    CN_DO_DECIDE,  // the outcome is known: uses decision
    CN_DO_END,     // the run has ended and its last version is here
};

// The outcome of a round, as far as the aggregator has told it.
struct cn_decision {
    enum cn_verdict verdict;
    // The newest decided round of the group, if an update of it counts or it is later than the
    // round in question; else 0.
    uint32_t round;
    uint8_t digest[CN_DIGEST_SIZE]; // digest of the update that counts; zeros: none
    double spare;                   // share of the round's time that was left
};

// The outcome for the changes that were trained in a round.
enum cn_outcome {
    CN_OUTCOME_COUNTED, // the frame counts
    // Another part of the group, with the same first steps, has delivered its update instead, or
    // has continued with later rounds.
    CN_OUTCOME_OTHER,
    CN_OUTCOME_NOTHING, // nothing counts: the whole change waits
};

struct cn_round_plan {
    enum cn_round_action action;
    // Used by DECIDE and ABANDON; for BEGIN it is the newest update that counts.
    struct cn_decision decision;
};

// The blob to fetch next: a delta, a snapshot or a full version. One blob or several lead from the
// held base to the version that the news names.
struct cn_round_fetch {
    uint32_t number; // version that the blob makes
    bool delta;      // a frame, relative to the held base or a snapshot; false: the full version
    bool last;       // number is the version of the news, whose digest is known
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE]; // digest of the blob
};

// Chooses the first blob of the sequence with the fewest bytes: all missing deltas, a snapshot and
// the deltas after it, or the full version. With avoid_delta it is the full version.
void cn_round_choose_fetch(const struct cn_checkpoint *held, const struct cn_round_info *news,
                           bool avoid_delta, struct cn_round_fetch *fetch);

// Returns whether a delta or snapshot that is being fetched because of older news still leads to
// the newest version: the deltas after it exist.
bool cn_round_leads_on(const struct cn_checkpoint *held, const struct cn_round_info *news,
                       const struct cn_round_fetch *begun);

// Returns what a decision on a round means to a board whose frame has this digest.
enum cn_outcome cn_round_outcome(const struct cn_decision *decision, uint32_t round,
                                 const uint8_t frame_digest[CN_DIGEST_SIZE]);

// Decides the next action. news is NULL until the aggregator has sent some; a begun round continues
// without it.
void cn_round_next(const struct cn_checkpoint *held, const struct cn_round_info *news,
                   struct cn_round_plan *plan);
