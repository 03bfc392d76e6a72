// trial_job.h - the job of a trial: that of the user's job file, and the trial's own values.
//
// An option of the command line counts more than the job file, and the job file more than the
// values that a trial has by itself.
#pragma once

#include "aggregator/trial/trial.h"

// Writes job.yaml into the folder. With regression the labels are numbers, not classes.
cn_err cn_trial_job_write(const struct cn_trial_options *options, bool regression,
                          const char *folder, struct cn_diag *diag);
