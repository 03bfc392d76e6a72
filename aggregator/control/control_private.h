// control_private.h - the state of the control service, which its files share.
#pragma once

#include "aggregator/control/control.h"
#include "aggregator/control/operator_limit.h"
#include "aggregator/store/audit.h"

struct cn_control {
    struct cn_control_config config;
    // A second connection to the ledger: the run takes what it writes for another program's change.
    struct cn_ledger *ledger;
    struct cn_local_server *server;
    enum cn_control_role roles[CN_LOCAL_SOCKETS]; // role that each socket gives
    bool own_socket;                              // the socket file in the state directory is ours
    uint64_t now_ms;                              // clock of the step
    const char *job; // the submitted job that the request is about; NULL: the gateway's own
    struct cn_operator_limit operators;
    struct cn_buffer shown; // the state as it was made for the last status; empty: none
    uint64_t shown_ms;      // clock; when it was made
    cn_err shown_err;       // of making it
};

// Carries out a request or refuses it. Sets answer->text in both cases, and answer->ok when the
// request was carried out. An error means that the ledger failed, or memory is short.
typedef cn_err cn_control_act(struct cn_control *control, const struct cn_control_request *request,
                              struct cn_control_answer *answer);

struct cn_control_command {
    const char *name;
    enum cn_control_role role;  // lowest role that may send the command
    unsigned allowed, required; // sets of cn_control_member
    bool changes;               // the command is audited, and its answer is remembered
    bool alone;                 // the command works while no aggregator runs
    bool of_run;                // the command may name a submitted job, whose run it is about then
    // What a command that changes nothing shows: JSON. NULL: the state of the run.
    cn_err (*read)(struct cn_control *control, const struct cn_control_request *request,
                   struct cn_control_answer *answer, struct cn_buffer *out);
    // Called in the transaction that also remembers the answer. NULL: there is no transaction.
    cn_control_act *write;
    // Called after the transaction; may change the answer's text, or leave it. NULL: nothing is
    // left to do. If a command has no write, apply is its whole effect and sets the answer, which
    // is remembered afterwards.
    cn_control_act *apply;
};

// Returns the command of this name, or NULL.
const struct cn_control_command *cn_control_find(const char *name);

// Writes a refusal.
void cn_control_refuse(struct cn_control_answer *answer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Writes what was done.
void cn_control_done(struct cn_control_answer *answer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The commands, by the files that have them.
cn_control_act cn_control_write_pause, cn_control_write_resume, cn_control_write_drain;
cn_control_act cn_control_write_close_round, cn_control_write_extend_round;
cn_control_act cn_control_apply_close_round, cn_control_apply_extend_round;
cn_control_act cn_control_apply_stop, cn_control_apply_reload;
cn_control_act cn_control_write_job_hold, cn_control_write_job_resume;
cn_control_act cn_control_write_job_stop, cn_control_write_job_next;
cn_control_act cn_control_apply_logs, cn_control_apply_selftest;
cn_err cn_control_read_answer(struct cn_control *control, const struct cn_control_request *request,
                              struct cn_control_answer *answer, struct cn_buffer *out);
cn_control_act cn_control_write_move, cn_control_write_enroll, cn_control_write_revoke;
