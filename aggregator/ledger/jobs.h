// jobs.h - the jobs that were submitted to a gateway besides that of its profile.
//
// The rows are in the ledger of the gateway's own run, because all jobs share its boards. Each job
// has a ledger of its own, in STATE/jobs/NAME, which says how far its run is. No version depends on
// a row, so replay does not read them. Calls that write are single statements, and may stand
// between cn_ledger_begin_write and cn_ledger_end_write. Errors are those of ledger.h. Threading:
// that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "runtime/profile/notation/rule.h"

#define CN_JOBS_FOLDER "jobs" // in the state directory; it has a folder for each job
#define CN_JOBS_MOST 63       // jobs that are not over
#define CN_JOB_PRIORITY 5     // of the profile's own job, and the default
#define CN_JOB_PRIORITY_MOST 9
#define CN_JOB_TURN 10 // default of cn_queued_job.turn
#define CN_JOB_TURN_MOST 100000
#define CN_JOB_REASON 200 // size of a sentence about a job

enum cn_job_state {
    CN_JOB_ACTIVE,
    CN_JOB_HELD,    // it gets no groups until it is resumed
    CN_JOB_ENDED,   // its run is over
    CN_JOB_STOPPED, // a person ended it
    CN_JOB_FAILED,  // its files cannot be opened, or its run met an error that does not pass
};

struct cn_queued_job {
    char name[CN_NAME_SIZE];
    uint32_t priority; // 0 to CN_JOB_PRIORITY_MOST; the highest comes first
    uint32_t turn;     // rounds, at least 1, after which others of its priority get its groups
    char needs[CN_RULE_SIZE]; // rule that the boards of a group must meet (rule.h); "": none
    enum cn_job_state state;
    bool ahead;                 // it comes before all others until its turn is over
    char reason[CN_JOB_REASON]; // why it is over; "": it is not
    uint64_t submitted_ms;      // milliseconds since 1970
};

// Adds a job behind the others. Does not read its ahead, reason and submitted_ms. Returns CN_EEXIST
// when there is a job of this name, CN_ERANGE when CN_JOBS_MOST are not over.
cn_err cn_jobs_add(struct cn_ledger *ledger, const struct cn_queued_job *job);
// Reads a job. Returns CN_ENOTFOUND when there is none of this name.
cn_err cn_jobs_find(struct cn_ledger *ledger, const char *name, struct cn_queued_job *job);

typedef cn_err cn_jobs_visit(void *context, const struct cn_queued_job *job);
// Visits all jobs in the order in which they were submitted. An error of visit ends the walk and is
// returned.
cn_err cn_jobs_list(struct cn_ledger *ledger, cn_jobs_visit *visit, void *context);

// Changes the state of a job that is not over, or makes one that failed active again. Does nothing
// to another job. reason is cut to CN_JOB_REASON. A job that is over then is no longer ahead.
cn_err cn_jobs_set_state(struct cn_ledger *ledger, const char *name, enum cn_job_state state,
                         const char *reason);
// Puts a job before all others, so that no other job is ahead; or with ahead false takes that back.
cn_err cn_jobs_set_ahead(struct cn_ledger *ledger, const char *name, bool ahead);

// Says whether a job gets no groups any more.
bool cn_job_is_over(enum cn_job_state state);
// Returns "active", "held", "ended", "stopped" or "failed".
const char *cn_job_state_name(enum cn_job_state state);
