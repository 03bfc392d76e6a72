// job_set.h - the jobs of a running gateway: opens their runs and lends them groups.
//
// The first job is that of the gateway's profile; its parts belong to the daemon. The others are
// rows of its ledger (ledger/jobs.h), each with a state directory STATE/jobs/NAME. A group serves
// one job at a time. Which one is decided again and again (jobs/job_schedule.h) and written
// nowhere: after a start, a group serves the job whose open round waits for its update, or else the
// first, until the schedule says another one. Threading: that of the daemon.
#pragma once

#include "aggregator/daemon/job_slot.h"
#include "transport/coap/coap_server.h"

struct cn_job_lease {
    char group[CN_NAME_SIZE];
    uint32_t holder;   // place of the job that it serves
    uint32_t moves;    // changes of its job since moves_ms
    uint64_t moves_ms; // clock; when the present period of moves began
};

struct cn_job_set {
    struct cn_job_run_shared shared; // what runs use of the gateway; roster is that of the boards
    const char *state;               // directory of the gateway; borrowed
    bool restored;                   // it is an older copy, so each run begins another lineage
    // Called when a job has ended or failed, with how and why; may be NULL.
    void (*ended)(void *context, const char *job, const char *how);
    void *ended_context;
    const struct cn_events *events; // of the gateway; NULL: not known
    struct cn_job_slot *slots;      // CN_SCHEDULE_JOBS, owned; the first job is slots[0]
    size_t count;
    size_t earlier;              // rows of jobs that are over and have no slot
    struct cn_job_lease *leases; // sorted by group, owned
    size_t lease_count;
    int64_t generation; // of the gateway's ledger, when the rows were read; set with has_read
    bool has_read;      // the rows were read and need not be read again at the same generation
    uint64_t started_ms, written_ms; // clock; 0: not yet
    uint64_t plan_ms, replan_ms;     // clock; when groups may be given to jobs again
    struct cn_log_quota lines;
    struct cn_job_look_faults *look_faults; // owned
    // Bytes of the server that were divided among the jobs, and what all but the first have.
    struct cn_run_traffic counted, others;
};

// Opens the set with the first job, whose run is open. first, shared and state are borrowed until
// close. Opens no other run yet.
cn_err cn_job_set_open(struct cn_job_set *set, const struct cn_job_run_shared *shared,
                       struct cn_job_run *first, struct cn_resources *resources, const char *state,
                       bool restored);
void cn_job_set_close(struct cn_job_set *set);

// Reads the rows and the boards again if another process changed them. Call it after the gateway's
// roster was refreshed.
cn_err cn_job_set_refresh(struct cn_job_set *set);

// Finds the slot of a job. Returns NULL when there is no such job or it has no slot: it was over
// before it had one, another job has it now, or all are taken.
const struct cn_job_slot *cn_job_set_find(const struct cn_job_set *set, const char *name);

// Decides which job each group serves, and advances the runs of all jobs except the first, whose
// state is passed. server has the bytes that are divided among the jobs. An error is logged, and
// what failed is tried again.
void cn_job_set_step(struct cn_job_set *set, const struct cn_run_state *first,
                     const struct cn_coap_server *server, uint64_t now_ms);

// Says whether a submitted job waits for an update of a group, which serves it.
bool cn_job_set_awaits(const struct cn_job_set *set, const char *group);

// Decides at once which job each group serves. context is the set. With one job there is nothing to
// decide, so all boards of a group are answered at once. Else it takes at most a fifth of the
// time, however often it is called: in between it decides nothing.
enum cn_replan cn_job_set_replan(void *context);

// Returns the resources of the job that a group serves. context is the set.
struct cn_resources *cn_job_set_serving(void *context, const char *group);

// Says whether no job but the first has anything left to do.
bool cn_job_set_is_over(const struct cn_job_set *set);
// Says whether no job but the first has an open round or makes a version.
bool cn_job_set_is_idle(const struct cn_job_set *set);
