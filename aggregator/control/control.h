// control.h - the control sockets of a running aggregator: what people ask of its run.
//
// A request is a line (control_request.h), its answer is {"id":"...","ok":true,"text":"..."}. What
// a client may ask depends on the socket it uses, because under a service manager a peer's user is
// not known (docs/steer-a-run.md). Requests are served one after another.
//
// A request that changes something is written to the audit before its effect (audit.h). Its effect
// and the answer that is remembered (steering.h) are one transaction of the ledger. So a kill at
// any moment leaves both or neither, and a request is carried out once, however often it is sent.
// reload, stop, logs and selftest are exceptions: their effect comes before the answer is
// remembered. After a kill between the two, the same request has its effect a second time.
// What changes the run of a submitted job is in the ledger of that job, and so is its answer; the
// audit is that of the gateway.
// Threading: that of the run.
#pragma once

#include "aggregator/control/control_request.h"
#include "aggregator/roster/orders.h"
#include "aggregator/run/run.h"
#include "transport/local/local_server.h"

enum cn_control_role {
    CN_CONTROL_VIEW,
    CN_CONTROL_OPERATOR,
    CN_CONTROL_ADMIN,
    CN_CONTROL_ROLES,
};

#define CN_CONTROL_SOCKET "admin.sock" // in the state directory of a gateway started by hand

// Returns "view", "operator" or "admin".
const char *cn_control_role_name(enum cn_control_role role);

// The run of a submitted job that is open now; borrowed for a request.
struct cn_control_job {
    const char *state; // directory of the run
    const struct cn_job *job;
    struct cn_run *run;
};

struct cn_control_config {
    const char *state;        // directory; borrowed, as all pointers here
    const struct cn_job *job; // job of the run
    struct cn_run *run;
    struct cn_orders *orders; // what is asked of boards
    void *context;            // passed to the functions below
    // Takes the values of a submitted job from its profile; job NULL: those of the gateway's own.
    // Writes to text which ones have changed or what is wrong. Returns whether they were taken.
    bool (*reload)(void *context, const char *job, char text[CN_STEERING_ANSWER_SIZE]);
    // Finds the run of a submitted job. Returns false when it is not open.
    bool (*find_job)(void *context, const char *job, struct cn_control_job *found);
    // Says whether a submitted job waits for an update of a group.
    bool (*awaits)(void *context, const char *group);
    // Ends the program as SIGTERM does.
    void (*stop)(void *context);
    // Reads the boards again, and ends the sessions of those that may no longer have one.
    void (*refresh)(void *context);
    // Learns of each command that was carried out, with the submitted job that it is about (NULL:
    // the gateway or its own run) and the answer. NULL: not called.
    void (*note)(void *noting, const char *command, const char *job, const char *answer);
    void *noting; // passed to note
    // Writes the state of the run as JSON.
    cn_err (*show)(void *context, struct cn_buffer *out);
};

struct cn_control;

// Listens at the sockets that the service manager handed over, or else at STATE/admin.sock. If it
// cannot listen, the log says why and the run goes on without a socket.
cn_err cn_control_open(const struct cn_control_config *config, struct cn_control **control);
void cn_control_close(struct cn_control *control);

// Serves clients, whose requests may change the state of the run.
void cn_control_step(struct cn_control *control, uint64_t now_ms);

// What became of a command.
struct cn_control_answer {
    bool ok;
    char text[CN_STEERING_ANSWER_SIZE]; // a sentence, or several lines
};

// A board that is enrolled already: its name and its group.
#define CN_CONTROL_ENROLLED                                                                        \
    "%s is enrolled already, in group %s; revoke it first to give it a new key"

// Says whether cn_control_alone can carry out a command of this name.
bool cn_control_works_alone(const char *command);

// Carries out a command that changes only the ledger, without a socket. The caller holds the lock
// of the state directory, except for enroll and revoke, which may also come while an aggregator
// runs. run and the functions of config are NULL.
void cn_control_alone(const struct cn_control_config *config,
                      const struct cn_control_request *request, struct cn_control_answer *answer);
