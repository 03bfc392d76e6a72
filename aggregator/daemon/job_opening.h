// job_opening.h - opens and closes the run of a submitted job.
#pragma once

#include "aggregator/daemon/job_set.h"

#define CN_JOB_PROFILE "profile.yaml" // of a job, in its folder

// Writes the path of a job's folder, or of a file in it, to path of CN_PATH_SIZE bytes. Returns
// false when it is too long.
bool cn_job_opening_path(const char *state, const char *job, const char *file,
                         char path[CN_PATH_SIZE]);

// Opens the run of a slot, with a roster and resources of its own. gateway and shared are borrowed
// until close. Prints or logs what is wrong, and writes to why a sentence for everybody, which has
// no path, or leaves why as it is. Close it in any case.
cn_err cn_job_opening_open(struct cn_job_slot *slot, const struct cn_job_run_shared *shared,
                           struct cn_resources *gateway, const char *state, bool restored,
                           char why[CN_JOB_REASON]);
// Closes what is open, and leaves the row. Does nothing to the first job.
void cn_job_opening_close(struct cn_job_slot *slot);
