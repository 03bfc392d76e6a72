// job_list.h - the jobs of a running gateway for people: as JSON, as metrics, as the file
// jobs.json.
//
// Each function's jobs is a struct cn_job_set.
#pragma once

#include "aggregator/daemon/job_set.h"
#include "aggregator/serve/http_service.h"

#define CN_JOB_LIST_FILE "jobs.json" // in the state directory of the gateway

// Returns the number of jobs, that of the profile included.
uint32_t cn_job_list_count(const void *jobs);
// Writes the member "jobs": an array with an object for each (show/JSON.md). Of jobs that are over
// and have no slot, the newest 20 are there.
cn_err cn_job_list_show(const void *jobs, struct cn_json_text *json);
// Writes metrics of each job, if there are several.
void cn_job_list_measure(const void *jobs, struct cn_metric_text *text);
// Writes the jobs that have a slot to the file.
cn_err cn_job_list_write(const struct cn_job_set *set);
