// job_list.h - the jobs of a running gateway for people: as JSON, and as the file jobs.json.
#pragma once

#include "aggregator/daemon/job_set.h"

#define CN_JOB_LIST_FILE "jobs.json" // in the state directory of the gateway

// Writes the jobs as an array of objects (docs/jobs.md).
cn_err cn_job_list_show(const struct cn_job_set *set, struct cn_buffer *out);
// Writes them to the file.
cn_err cn_job_list_write(const struct cn_job_set *set);
