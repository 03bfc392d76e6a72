// job_submit.h - adds a job to the queue of a gateway, with its files in STATE/jobs/NAME.
//
// The folder gets a copy of the model and the whole profile of the job's run, so that the submitted
// files may change afterwards, and each command that takes a PROFILE takes that of the job. The
// files are durable before the row of the queue: a kill between the two leaves a folder that the
// next attempt replaces.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/ledger/jobs.h"

struct cn_job_submission {
    const char *profile; // path of the gateway's profile
    const char *job;     // path of the job file
    const char *name;    // NULL: the name that the job file has
    // State directory of the run with whose weights it begins, and the version there as for `init
    // --after`; NULL: with those of its model.
    const char *from, *version;
    uint32_t priority, turn; // as in cn_queued_job
    const char *needs;       // "": no rule
};

// Adds the job to the queue of setup, which is open for CN_SETUP_ENROLL. Prints what is wrong.
// Fills job in. Returns the exit code.
int cn_job_submit(const struct cn_setup *setup, const struct cn_job_submission *submission,
                  struct cn_queued_job *job);
