// round.h - what a group does next in a round, as a pure decision.
//
//   EMPTY --fetch--> BASE --begin--> TRAIN --steps--> SEND --decide--> BASE
//
// The inputs are what the board holds (phase, round, base; from its checkpoint) and what the
// aggregator last said. Late and repeated news is normal on a lossy link: news older than what the
// board holds changes nothing. No clock, no network and no memory in here. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "runtime/round/checkpoint/checkpoint.h"

enum cn_round_action {
    CN_DO_WAIT,    // nothing to do until there is news
    CN_DO_RESET,   // another run: forget everything of this one
    CN_DO_FETCH,   // get the version the aggregator names
    CN_DO_BEGIN,   // start the round: weights = base
    CN_DO_STEP,    // train on
    CN_DO_ABANDON, // the round is over without us: .decision
    CN_DO_SEND,    // deliver the outbox
    CN_DO_DECIDE,  // the outcome is known: .decision
    CN_DO_END,     // the run has ended and its last version is here
};

// What became of a round, as far as the aggregator has told.
struct cn_decision {
    enum cn_verdict verdict;
    // The newest round of the group that was decided, if an update of it counts or the round is
    // later than the one in question; else 0.
    uint32_t round;
    uint8_t digest[CN_DIGEST_SIZE]; // of the update that counts; zeros for none
    double spare;                   // share of the deadline that was left
};

// What to do with what was trained in a round.
enum cn_outcome {
    CN_OUTCOME_COUNTED, // the frame counts
    CN_OUTCOME_OTHER,   // another part of the group, with the same first steps, has delivered its
                        // update in place of this one, or has gone on to later rounds
    CN_OUTCOME_NOTHING, // nothing of it counts: all of it waits
};

struct cn_round_plan {
    enum cn_round_action action;
    struct cn_decision decision; // DECIDE, ABANDON; BEGIN: the newest update that counts
};

// What to fetch to get from the held base to the version that the news names.
struct cn_round_fetch {
    uint32_t number; // the version that it makes
    bool delta;      // a frame, relative to the held base or a snapshot; else the full version
    bool last;       // number is that of the news, whose digest is known
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE]; // of the blob
};

// The first step of the way with the fewest bytes: all the deltas that are missing, a snapshot and
// the deltas after it, or the full version.
void cn_round_choose_fetch(const struct cn_checkpoint *held, const struct cn_round_info *news,
                           bool avoid_delta, struct cn_round_fetch *fetch);

// Whether a delta or snapshot whose fetch was begun by older news leads on: the deltas after it are
// there.
bool cn_round_leads_on(const struct cn_checkpoint *held, const struct cn_round_info *news,
                       const struct cn_round_fetch *begun);

// What the decision on a round means to a board whose frame of it has that digest.
enum cn_outcome cn_round_outcome(const struct cn_decision *decision, uint32_t round,
                                 const uint8_t frame_digest[CN_DIGEST_SIZE]);

// news is NULL while the aggregator has not been heard: a round that was begun goes on without it.
void cn_round_next(const struct cn_checkpoint *held, const struct cn_round_info *news,
                   struct cn_round_plan *plan);
