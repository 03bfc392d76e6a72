// stale.h - how much an update counts that began from an older version: FedBuff.
//
// An update of round r that goes into version N began from version r - 1, so its staleness is
// s = N - r. It counts with T[s] / 256 of its weight w, T[s] = 256 / sqrt(1 + s), rounded to the
// nearest integer. The mean divides by the sum of all w, not of w * T[s] / 256: a version made of
// stale updates moves the model less (Nguyen et al. 2022, "Federated Learning with Buffered
// Asynchronous Aggregation", algorithm 1). With s = 0 for all updates it is the mean of a
// synchronous round, to the bit. Pure functions. Threading: none.
#pragma once

#include "runtime/profile/job.h"

#define CN_STALE_ONE 256 // T[0]: the update counts in full

// Returns T[s] for a staleness of at most CN_STALENESS_MAX.
uint32_t cn_stale_factor(uint32_t staleness);

// Returns the settings of the server's optimizer for the job's versions. A synchronous round merges
// as many updates as quorum / buffer asynchronous versions. So an asynchronous job that sets no
// learning rate gets the optimizer's default, multiplied by buffer / quorum if that is below 1.
struct cn_server cn_stale_server(const struct cn_job *job);
