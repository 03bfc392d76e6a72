// job_bytes.h - divides the bytes of a gateway's server among its jobs.
#pragma once

#include "aggregator/daemon/job_set.h"

// Divides the server's new bytes among the jobs by their boards' requests since the last call. Call
// it often: then mostly one job has all. The first job has what the others have not.
void cn_job_bytes_divide(struct cn_job_set *set, const struct cn_coap_server *server);

// Takes the bytes of the other jobs off those of the whole server, which leaves the first one's.
void cn_job_bytes_take_off(const struct cn_job_set *set, struct cn_run_traffic *traffic);
