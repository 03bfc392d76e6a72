// job_set_plan.h - which job each group serves: keeps the leases of a job set.
#pragma once

#include "aggregator/daemon/job_set.h"

// Decides which job each group serves from now on, tells the rosters of all jobs, and logs which
// jobs wait and why.
cn_err cn_job_set_plan(struct cn_job_set *set, uint64_t now_ms);
