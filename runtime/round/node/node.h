// node.h - a board in a run: registers, forms its group, trains and delivers updates until it is
// stopped.
//
// The owner thread polls the link to the aggregator and the messages of the group. A worker thread
// trains. All state that matters is in the store, so a node may be killed at any instruction and
// started again. Killing it is also the normal way to stop it.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/port/linked_ports.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/session/timeline.h"

struct cn_status_file;

struct cn_node_config {
    const struct cn_settings *settings; // borrowed, as are all pointers here
    const struct cn_ports *ports;
    const struct cn_compute_ops *compute;
    uint32_t capability; // of the device of compute, as in struct cn_compute
    struct cn_store *store;
    const char *sysroot;           // directory with the board's sys/ and proc/; "" on the board
    uint8_t link_key[CN_KEY_SIZE]; // key of the session with the aggregator
    bool until_end;                // return when the run has ended
    uint64_t give_up_ms;           // return after the aggregator was away this long; 0: never
    uint64_t fault_wait_ms;        // time before returning because this board cannot train
    const atomic_bool *stop;       // set by a signal handler
    // Called by the owner thread many times a second; may be NULL.
    void (*look)(void *context, const struct cn_status_file *status, uint64_t now_ms);
    void *look_context;
    struct cn_timeline *timeline; // records the group's steps; NULL for none
};

// Runs the node. Returns CN_OK when the run ended, CN_ECANCELED on stop, CN_ETIMEOUT when the
// aggregator was away for give_up_ms, and CN_EAUTH when it refused this board for that time. The
// log and the aggregator are told of all other errors.
cn_err cn_node_run(const struct cn_node_config *config);
