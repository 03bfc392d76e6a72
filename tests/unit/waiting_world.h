// waiting_world.h - runs of several rounds in an epoch world whose members have a part each, and
// the files in which waits what a round's update left out.
//
// Any mistake fails the test. Threading as in epoch_world.h.
#pragma once

#include "tests/unit/epoch_world.h"

#define PARTS 3
#define STEPS 2
#define ROUNDS 3
#define EVERYBODY ((1u << PARTS) - 1)
#define STORED 0x70770002u // fingerprint of the sum of members that have stored

// A run of several rounds, as the gateway sees it. It refuses the update of the second.
struct waiting_run {
    uint32_t round;     // round that is open
    uint64_t number;    // of the next epoch
    uint32_t no_copies; // bit per board that is given no copy
    uint8_t digests[ROUNDS + 1][CN_DIGEST_SIZE];
};

// Sets the rules of the tests, without or with a part for each of three members; others look on.
void waiting_take_rules(struct epoch_world *world);
void waiting_hold_parts(struct epoch_world *world, int members);

// Begins a run with empty disks.
struct waiting_run waiting_start(struct epoch_world *world);

// Sets the world up and trains all rounds, without a fault.
void waiting_begin(struct epoch_world *world, struct waiting_run *undisturbed);

// Trains in one epoch up to the update of round `last`. Returns whether it came so far.
bool waiting_train(struct epoch_world *world, struct waiting_run *run, uint32_t last, int victim,
                   uint32_t calls);

// Waits until each board, but those with a bit in `without`, has a copy of what waits.
void waiting_await_copies(struct epoch_world *world, uint32_t round, uint32_t without);

// The updates of both runs are the same.
void waiting_expect_same(const struct waiting_run *run, const struct waiting_run *undisturbed);

// Starts the process of a member again, with its disk or with an empty one.
void waiting_restart(struct epoch_world *world, int index);
void waiting_lose_disk(struct epoch_world *world, int index);

// --- the files ---

// Counts the files of a board with what waits. part: only those of this part; round: only those of
// this round; UINT32_MAX: all.
int waiting_count(const struct epoch_world *world, int index, uint32_t part, uint32_t round);

// Counts the files of the set that a board's state names.
int waiting_count_named(struct epoch_world *world, int index);

// Returns whether the board has a copy of another part, of this round.
bool waiting_has_copy(const struct epoch_world *world, int index, uint32_t round);
