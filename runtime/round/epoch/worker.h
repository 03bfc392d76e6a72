// worker.h - the thread that trains: it opens the session and runs one epoch after the other.
#pragma once

#include "runtime/group/backend.h"
#include "runtime/group/patience.h"
#include "runtime/round/epoch/mailbox.h"
#include "runtime/round/session/session.h"

struct cn_worker_config {
    struct cn_session_config session;
    struct cn_mailbox *box;
    struct cn_backend_ports collectives; // for groups of more than one member
    const struct cn_member *members;     // with pair keys; borrowed for cn_worker_start
    uint32_t member_count;
    struct cn_log_quotas *lines; // limits log lines about members; borrowed; this thread's only
    // Longest time without a byte, until it proves too short (patience.h). Membership notices dead
    // members sooner.
    uint32_t timeout_ms;
};

struct cn_worker {
    struct cn_worker_config config;
    struct cn_member listed[CN_GROUP_MAX];  // with the profile's addresses
    struct cn_member members[CN_GROUP_MAX]; // with the addresses of this epoch
    pthread_t thread;
    uint32_t lossy_paths; // cn_collective_config.lossy_paths
    struct cn_patience patience;
    bool starved; // memory was short in several epochs in a row
    bool over;    // the run has ended, as far as the last epoch knew
};

// Starts the thread. It puts "left" into the mailbox when its session is open, and after each
// epoch; it then waits for a view. It ends on stop, when another run is wanted, or after it has put
// a failure: the session cannot be opened, or only a new process helps (CN_EWEDGED).
cn_err cn_worker_start(const struct cn_worker_config *config, struct cn_worker *worker);

// Waits for the end of the thread. Call cn_mailbox_stop first, unless the worker ended by itself.
void cn_worker_join(struct cn_worker *worker);
