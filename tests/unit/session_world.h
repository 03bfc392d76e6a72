// session_world.h - a board that is alone and trains rounds of few samples, for tests of its
// session.
//
// The test plays the aggregator and the process of the board: it gives versions and orders, decides
// what becomes of updates, and kills. Session, trainer and the disk are those of the product. The
// settings of world->job and world->settings count from the next opening of the session.
//
// Any mistake fails the test. Threading: none.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/port/platform.h"
#include "runtime/round/session/session_private.h"

struct session_world {
    char *directory; // the board's state is below it
    struct cn_job job;
    struct cn_settings settings;
    struct cn_mapping model;
    uint64_t run;         // number of the run; 0: 9
    atomic_uint given_up; // the newest round that the board gave up
    struct cn_store *store;
    struct cn_session *session;
    struct cn_collective *alone; // a group of one
};

// Set-up and teardown of a case. The session is not opened yet.
int session_world_set_up(void **state);
int session_world_tear_down(void **state);

// Opens the session and installs version 0.
void world_open_session(struct session_world *world);

// Opens the session with what is on the disk.
void world_reopen(struct session_world *world);

// Closes the session as a kill does, saving nothing, and opens it again.
void world_kill_and_reopen(struct session_world *world);

// Installs the initial weights as the version with this number, as the aggregator sends it.
void world_install(struct session_world *world, uint32_t number);

// Begins a round, by the order that a leader would give.
void world_begin(struct session_world *world, uint32_t round);

// Trains a round to the end: its frame is in the outbox.
void world_train(struct session_world *world, uint32_t round);

// Tells the session the verdict of its update, and that the update with this digest counts for a
// round. Round 0: no update counts, and digest is not read.
void world_decide(struct session_world *world, enum cn_verdict verdict, uint32_t round,
                  const uint8_t *digest);

// Returns the tensor of this name, which the model has to have.
const struct cn_tensor_info *world_find(const struct session_world *world, const char *name);
