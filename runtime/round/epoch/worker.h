// worker.h - the thread that trains: session, collectives and epochs, one after the other.
#pragma once

#include "runtime/group/backend.h"
#include "runtime/round/epoch/mailbox.h"
#include "runtime/round/session/session.h"

struct cn_worker_config {
    struct cn_session_config session;
    struct cn_mailbox *box;
    struct cn_backend_ports collectives; // for groups of more than one
    const struct cn_member *members;     // with pair keys; borrowed for the start
    uint32_t member_count;
    struct cn_log_quotas *lines; // about each member; borrowed, used by the worker's thread only
    uint32_t timeout_ms; // without a byte of a member; membership finds the dead ones sooner
};

struct cn_worker {
    struct cn_worker_config config;
    struct cn_member listed[CN_GROUP_MAX];  // as the profile says
    struct cn_member members[CN_GROUP_MAX]; // at their addresses of this epoch
    pthread_t thread;
    bool starved; // it got no memory in several epochs in a row
};

// Starts the thread. It says "left" in the mailbox when its session is open and wants a view, and
// after each epoch. It ends on stop, when another run is wanted, or after saying that it failed:
// the session cannot be opened, or only a new process helps (CN_EWEDGED).
cn_err cn_worker_start(const struct cn_worker_config *config, struct cn_worker *worker);

// Waits for the end; call cn_mailbox_stop first unless the worker ended by itself.
void cn_worker_join(struct cn_worker *worker);
