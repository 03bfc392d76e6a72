// job_look.h - what the page shows of any job of a running gateway.
#pragma once

#include "aggregator/serve/http_show.h"

#define CN_JOB_LOOK_FAULTS 8
#define CN_JOB_LOOK_AGAIN_MS 60000

// Jobs whose stored run could not be read. Each attempt writes lines to standard error, so a job is
// tried again only after CN_JOB_LOOK_AGAIN_MS, and no other one while all places are taken.
struct cn_job_look_faults {
    struct {
        char job[CN_NAME_SIZE];
        uint64_t tried_ms; // clock; 0: free
    } items[CN_JOB_LOOK_FAULTS];
};

// Writes the part of a job's run that wish names. jobs is a struct cn_job_set. A run that is not
// open is read from its state directory. Returns CN_ENOTFOUND when there is no job of this name, or
// no state that can be read.
cn_err cn_job_look(const void *jobs, const char *name, const struct cn_http_wish *wish,
                   struct cn_buffer *out);
// Returns CN_ENOTFOUND when no job of this name was submitted. jobs is a struct cn_job_set.
cn_err cn_job_look_find(const void *jobs, const char *name);
