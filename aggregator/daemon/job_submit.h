// job_submit.h - adds a job to the queue of a gateway, with its files in STATE/jobs/NAME.
//
// The folder gets a copy of the model and the whole profile of the job's run, so that the submitted
// files may change afterwards, and each command that takes a PROFILE takes that of the job. The
// files are durable before the row of the queue: a kill between the two leaves a folder that the
// next attempt replaces.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/ledger/jobs.h"
#include "runtime/engine/onnx/onnx_file.h"

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

// The files of a submission that the caller may read, and the state's owner perhaps not. Zero it
// before use, and close it in any case.
struct cn_job_files {
    struct cn_profile *profile; // that of the job's run
    struct cn_onnx_file model;
    bool has_model;
};

// Opens the profile and the model. Prints what is wrong. Returns the exit code.
int cn_job_files_open(const struct cn_job_submission *submission, struct cn_job_files *files);
void cn_job_files_close(struct cn_job_files *files);

// Adds the job to the queue of setup, which is open for CN_SETUP_ENROLL. Prints what is wrong.
// Fills job in. Returns the exit code. If root calls it for the state of another user, setup must
// have the rights CN_SETUP_OF_OWNER_FOREVER.
int cn_job_submit(const struct cn_setup *setup, const struct cn_job_submission *submission,
                  const struct cn_job_files *files, struct cn_queued_job *job);
