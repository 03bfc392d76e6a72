// epoch_world.h - members that train the digits over the TCP ring, each in a thread of its own.
//
// There are two members, or up to nine once a test begins them. The test plays the owners of the
// members (their processes, disks and mailboxes) and the aggregator. Member 0 is the leader.
// Sessions, epochs, trainers and the ring are those of the product.
//
// An epoch goes like this: world_start, news to the leader's mailbox, world_serve_version where the
// members have no version yet, world_serve_until_upload, world_end_epoch.
//
// Any mistake fails the test. Threading: all functions are for the test's own thread; a board's
// session, collective and checkpoint are its own between world_start and board_join.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/platform.h"
#include "runtime/round/epoch/epoch.h"
#include "runtime/round/session/session_private.h"
#include "tests/support/flaky_store.h"

#define BOARDS 9    // most members
#define NOBODY (-1) // no member dies in the epoch
#define PIECE 1021  // bytes of a piece of a state; no other call has so many
#define CALLS 2048  // calls of an epoch that a board remembers
#define DRAWERS 4   // members that have samples of their own; others have those of one of them

// A collective that passes calls on to the ring, until its board dies in one of them.
struct mortal {
    struct cn_collective base;
    struct cn_collective *ring;
    uint32_t calls_left;
    bool hears;      // the last call runs, but the board does not see its end
    bool stores;     // the board stores a divided state after each step
    uint32_t pieces; // pieces of a state that came
    size_t lies_of;  // floats of the all-reduces to which the board adds a lie; 0: none
    size_t lie_at;   // place of the lie
    float lie;
    uint32_t lies;    // lies that were told
    uint32_t changes; // fingerprint of calls whose data change() changes before they run
    void (*change)(struct mortal *mortal, const struct cn_collective_call *call);
    uint32_t exchanged; // bit m: passes of micro-batch m of a step made exchanges of shares
    uint32_t called;    // the epoch's calls that are in calls
    struct cn_collective_call calls[CALLS];
};

struct epoch_board {
    struct mortal mortal; // the first member, by which a collective finds its board
    atomic_bool left;     // the epoch is over
    struct cn_settings settings;
    struct cn_flaky_store flaky; // used in place of a disk once it is initialized
    struct cn_store *store;
    struct cn_session *session; // NULL: the process is down
    struct cn_mailbox box;
    struct cn_epoch epoch;
    struct cn_collective_config collective;
    pthread_t thread;
    cn_err err; // result of the last epoch
};

struct epoch_world {
    char *directory; // below it are the state directories of the members
    struct cn_job job;
    struct cn_mapping model;
    int count;                                // members
    uint32_t victims;                         // bit m: member m has a turn in a sweep
    struct cn_member members[BOARDS][BOARDS]; // members[i] is the list that member i has
    struct epoch_board boards[BOARDS];
    uint8_t *version; // version 0, in full
    size_t version_size;
    struct cn_round_info news; // round 1, open for version 0
    uint32_t trials;           // calls of world_begin_anew, each with stores of its own
    uint32_t middles; // trials of a sweep in which the victim kept a state between two steps
};

// Set-up and teardown of a case: two members with open sessions and empty disks.
int epoch_world_set_up(void **state);
int epoch_world_tear_down(void **state);

// Replaces the model by that of a file, and version 0 by its weights.
void world_take_model(struct epoch_world *world, const char *path);

// Sets up a member, whose index is below world->count, and opens its session.
void world_init_board(struct epoch_world *world, int index);

// Starts the process of a member as far as its session: it loads what is on its disk.
void world_open_session(struct epoch_world *world, int index);

// Ends the process, as a kill does: nothing more is stored.
void board_close_session(struct epoch_board *board);

// Cut the CNN of the digits into parts, on `count` members with the samples of the first, which
// store a divided state after each step.
void world_hold_three_parts(struct epoch_world *world, int count);
void world_hold_two_parts(struct epoch_world *world, int count);

// The same for two parts of a model with a tensor that both use.
void world_hold_tied_parts(struct epoch_world *world, int count);

// Begins all members from the start, with empty disks.
void world_begin_anew(struct epoch_world *world);

// Makes all members store a divided state after each step of a round.
void world_store_each_step(struct epoch_world *world);

// --- an epoch ---

// Starts the epoch with this number on all members, which take their state from member source. The
// victim, if not NOBODY, dies in its call number `calls` of the collective, counted from 0.
void world_start(struct epoch_world *world, uint64_t number, uint32_t source, int victim,
                 uint32_t calls);

// Waits until a member's epoch is over.
void board_join(struct epoch_board *board);

// Stops all members and waits until their epochs are over.
void world_end_epoch(struct epoch_world *world);

// Ends the epoch by the loss of the second member and closes its session.
void world_lose_second(struct epoch_world *world);

// Waits for the leader's next errand of this kind. Drops errands of other kinds.
void board_await_errand(struct epoch_board *board, enum cn_errand kind,
                        struct cn_errand_request *request);

// Waits until the board knows that its run is over.
void board_await_end(struct epoch_board *board);

// Waits until the leader fetches version 0, and gives it.
void world_serve_version(struct epoch_world *world);

// Serves the leader until it wants to send its update (true) or the epoch is over (false). digest
// is that of the update.
bool world_serve_until_upload(struct epoch_world *world, uint8_t digest[CN_DIGEST_SIZE]);

// Trains the round in epoch 16 until its update is to be sent. The epoch goes on.
void world_train_round(struct epoch_world *world, uint8_t digest[CN_DIGEST_SIZE]);

// Returns the member whose state the others have to take.
uint32_t world_newest(const struct epoch_world *world);

// --- sweeps ---

// What happens to a member.
struct world_fault {
    int victim;
    bool hears; // it leaves when its last call has ended on the others; otherwise in the call
    bool dies;  // it comes back with what is on its disk; otherwise its process lives on
};

// Takes a member out of a round in its call number `calls` of the epoch. After that a second epoch
// has to make the undisturbed update. Returns false when the update was made before that call. Adds
// to *rolled if the victim held the sums of a step that another had applied.
bool world_break_call(struct epoch_world *world, const struct world_fault *fault, uint32_t calls,
                      const uint8_t undisturbed[CN_DIGEST_SIZE], uint32_t *rolled);

// Breaks call 0, then 1, 2, ... of each of world->victims, until the update is made before that
// call. Returns the number of losses in *rolled.
uint32_t world_sweep_calls(struct epoch_world *world, bool hears, bool dies,
                           const uint8_t undisturbed[CN_DIGEST_SIZE]);
