// job_schedule.h - decides which job each group serves next, when a gateway has several.
//
// A pure function of what it is given. The jobs are ranked, and each in turn claims the groups that
// it can use. A group changes to the job that claimed it once its job does not wait for its update,
// so a round is never broken up. A job that cannot get the groups that it needs claims none: others
// have them meanwhile. Because the ranks are one order for all groups, two jobs cannot each keep
// half of what both need.
//
// The rank, the first difference decides: a job that a person put ahead; the higher priority; one
// whose turn is under way; the smaller share of rounds; the earlier place in the list. Threading:
// none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define CN_SCHEDULE_NONE UINT32_MAX
#define CN_SCHEDULE_JOBS 64 // most jobs

// Why a job has no groups of its own.
enum cn_schedule_wait {
    CN_WAIT_NONE,    // it has what it needs
    CN_WAIT_IDLE,    // it may not have groups now
    CN_WAIT_FEW,     // fewer groups fit than it needs
    CN_WAIT_SILENT,  // enough fit, but too few of them were heard lately
    CN_WAIT_OTHERS,  // jobs that rank higher have them
    CN_WAIT_FREEING, // groups that it claimed finish the round of another job
};

struct cn_schedule_job {
    bool runs;         // it may have groups
    bool ahead;        // a person put it before all others
    uint32_t priority; // with what waiting has added
    bool in_turn;      // it has groups, and the rounds of its turn are not over
    double share;      // rounds that it had, in turns
    uint32_t needs;    // least groups of use to it
    uint32_t wanted;   // most groups of use to it
    // Set by the schedule.
    enum cn_schedule_wait wait;
    uint32_t fit, live; // groups that fit, and those of them that are live
};

struct cn_schedule_group {
    bool live;       // heard lately, or may be heard yet: the gateway has just begun
    bool heard;      // heard lately
    uint32_t holder; // job that it serves: index, or CN_SCHEDULE_NONE
    bool busy;       // its job waits for its update
    uint64_t fits;   // jobs that it can serve, as bits
    // Set by the schedule.
    uint32_t claimed; // job that gets it, at once or when it is free; CN_SCHEDULE_NONE: none
};

// Sets what the schedule decides. A group that is not busy changes to the job that claimed it;
// without a claim it stays where it is. Returns CN_ERANGE for too many jobs.
cn_err cn_schedule(struct cn_schedule_job *jobs, size_t job_count, struct cn_schedule_group *groups,
                   size_t group_count);
