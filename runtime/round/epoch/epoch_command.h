// epoch_command.h - what rank 0 of a group tells the members of an epoch to do next.
//
// A command travels as CN_EPOCH_COMMAND_SIZE bytes. All members of a group run the same release, so
// the bytes have no version.
#pragma once

#include "runtime/port/compute.h"
#include "runtime/round/session/session.h"

#define CN_EPOCH_COMMAND_SIZE 72

enum cn_epoch_command_kind {
    CN_EPOCH_IDLE,    // nothing to do; says that rank 0 is alive
    CN_EPOCH_BASE,    // take a version; its bytes follow the command
    CN_EPOCH_BEGIN,   // begin a round
    CN_EPOCH_STEPS,   // train the rest of the round and fill the outbox
    CN_EPOCH_ABANDON, // give up the round
    CN_EPOCH_DECIDE,  // apply the outcome of the outbox
    CN_EPOCH_END,     // the run has ended
    CN_EPOCH_REFORM,  // a board outside the epoch asks to re-form the group, or another cut is due
    CN_EPOCH_RESET,   // the aggregator runs another run
    CN_EPOCH_CONTROL, // take the server's control variate; its bytes follow the command
    CN_EPOCH_COPY,    // store copies of what waits at the neighbours
};

struct cn_epoch_command {
    enum cn_epoch_command_kind kind;
    union {
        struct {
            uint32_t number; // of the version
            uint32_t forget; // as in cn_session_version
            bool delta;      // the bytes are a frame
            uint64_t size;
            uint8_t digest[CN_DIGEST_SIZE]; // of the version
            uint8_t *bytes; // does not travel; of scratch.h on each member; cn_epoch_run frees it
        } base;             // BASE
        struct {
            uint32_t epoch;          // of the variates
            uint64_t size;           // 0: the variate is zeros
            uint8_t *bytes;          // as above
        } control;                   // CONTROL
        struct cn_round_order begin; // BEGIN
        struct {
            uint64_t bucket;         // bytes of gradients that are reduced at a time
            enum cn_number wire;     // number format of gradients
        } steps;                     // STEPS
        struct cn_decision decision; // ABANDON and DECIDE
    };
};

void cn_epoch_command_put(const struct cn_epoch_command *command,
                          uint8_t bytes[CN_EPOCH_COMMAND_SIZE]);

// Reads a command. Returns CN_EFORMAT for an unknown kind, verdict or number format. The rule of
// BEGIN is checked by cn_session_begin.
cn_err cn_epoch_command_get(const uint8_t bytes[CN_EPOCH_COMMAND_SIZE],
                            struct cn_epoch_command *command);
