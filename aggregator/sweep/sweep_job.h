// sweep_job.h - the job files of a sweep: the base job with the values of a trial over it.
#pragma once

#include "aggregator/sweep/sweep_space.h"
#include "runtime/port/store.h"

// Writes the job of a trial to a file of the store. base: absolute path of the job that it extends;
// NULL: none. rounds: rounds.count; 0: left out.
cn_err cn_sweep_job_write(const struct cn_sweep_space *space, uint32_t trial, const char *base,
                          uint32_t rounds, struct cn_store *store, const char *name);

// Returns CN_EINVAL when the job file at path has a mistake; its lines are in diag.
cn_err cn_sweep_job_check(const char *path, struct cn_diag *diag);
