// job_slot.h - a job of a running gateway, with what the schedule needs to know of it.
#pragma once

#include "aggregator/daemon/job_run.h"
#include "aggregator/jobs/job_fit.h"
#include "aggregator/jobs/job_schedule.h"
#include "aggregator/serve/event_run.h"

// A job of the gateway. The first one is that of the gateway's own profile, and has no row in the
// ledger.
struct cn_job_slot {
    struct cn_queued_job row;
    struct cn_rule rule; // of row.needs
    // Parts of the run; NULL: it is not open. Those of the first job belong to the gateway.
    struct cn_job_run *run;
    struct cn_roster *roster;
    struct cn_resources *resources;
    const struct cn_job_run_shared *gateway; // what the run uses of it; NULL for the first job

    struct cn_run_state state;     // of the run, at the newest tick
    struct cn_run_traffic traffic; // bytes of the gateway that count as the job's
    uint64_t requests;             // of its boards, that are counted in traffic

    // Number of the round with which its share of rounds begins. Below 0 when the other jobs had
    // rounds before this one was opened.
    int64_t counts_from;
    uint32_t turn_from; // rounds that it had when its turn began
    uint32_t holds;     // groups that serve it
    uint64_t waits_ms;  // clock; since when it runs without a group; 0: it does not
    uint32_t boost;     // what waiting added to its priority
    uint64_t tried_ms;  // clock; when its run was last opened, in vain or not; 0: not yet
    struct cn_schedule_job plan;
    enum cn_run_phase planned; // phase of the run at the newest plan
    uint64_t opened_ms;        // clock; when this program opened the run
    char unfit[CN_JOB_REASON]; // why a group does not fit; "": all fit
    char told[CN_JOB_REASON];  // the line that the log has about the wait
    struct cn_log_quota lines;
    struct cn_event_run events; // what was seen of the run; zeros: not yet since it was opened
};

// Fills plan in with what the schedule wants to know.
void cn_job_slot_plan(struct cn_job_slot *slot, uint64_t now_ms);
// Follows what became of the plan: turns, waiting. Returns whether the job's turn is over.
bool cn_job_slot_follow(struct cn_job_slot *slot, uint32_t holds, uint64_t now_ms);
// Sets where the job's share of rounds begins, so that it is the least of the others': a new job
// then gets no more than they from now on.
void cn_job_slot_begin(struct cn_job_slot *slot, double least_share);

// Says whether the run of the job is over, also if the queue has no word of that: the profile's job
// has no row there.
bool cn_job_slot_has_ended(const struct cn_job_slot *slot);

// Describes in a line how the job stands.
#define CN_JOB_TEXT (2 * CN_JOB_REASON)
void cn_job_slot_describe(const struct cn_job_slot *slot, char text[CN_JOB_TEXT]);
