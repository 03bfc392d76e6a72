// job_look.h - what the page shows of any job of a running gateway.
#pragma once

#include "aggregator/serve/http_show.h"

// Writes the part of a job's run that wish names. jobs is a struct cn_job_set. A run that is not
// open is read from its state directory. Returns CN_ENOTFOUND when there is no job of this name, or
// no state that can be read.
cn_err cn_job_look(const void *jobs, const char *name, const struct cn_http_wish *wish,
                   struct cn_buffer *out);
// Returns CN_ENOTFOUND when no job of this name was submitted. jobs is a struct cn_job_set.
cn_err cn_job_look_find(const void *jobs, const char *name);
