// job_view.h - shows the jobs of a gateway to people.
#pragma once

#include "aggregator/daemon/setup.h"

// Prints all jobs, if name is NULL, or the one of this name with all that is known of it. setup is
// open for CN_SETUP_LOOK. Prints what is wrong. Returns the exit code.
int cn_job_view(const struct cn_setup *setup, const char *name, bool json);

// Waits until the running aggregator has looked at a job, at most two seconds, and prints how the
// job stands. If no aggregator runs, prints that the job waits.
void cn_job_view_await(const struct cn_setup *setup, const char *name);
