// node.h - a board in a run: registers, forms its group, trains and delivers, until it is told to
// stop.
//
// The owner thread polls the link to the aggregator and the messages of the group; a worker thread
// trains. All state that matters is in the store, so a node may be killed at any instruction and
// started again: that is also how it is stopped in the field.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/port/linked_ports.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/session/timeline.h"

struct cn_node_config {
    const struct cn_settings *settings; // borrowed, as all pointers here
    const struct cn_ports *ports;
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    const char *sysroot;           // where sys/ and proc/ of the board are; "" on it
    uint8_t link_key[CN_KEY_SIZE]; // for the session with the aggregator
    bool until_end;                // return when the run has ended
    uint64_t give_up_ms;           // return when the aggregator was away for so long; 0: never
    uint64_t fault_wait_ms;        // before returning because this board cannot train
    const atomic_bool *stop;       // set by a signal handler
    struct cn_timeline *timeline;  // of the group's steps; NULL for none
};

// CN_OK when the run ended, CN_ECANCELED on stop, CN_ETIMEOUT when the aggregator was away for
// give_up_ms, CN_EAUTH when it refused this board for as long; other errors are said in the log and
// to the aggregator.
cn_err cn_node_run(const struct cn_node_config *config);
