// job_place.h - where the run of a submitted job lies: STATE/jobs/NAME of its gateway.
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "runtime/base/error.h"
#include "runtime/base/name.h"
#include "runtime/profile/profile.h"

struct cn_job_place {
    char gateway[PATH_MAX]; // state directory of the gateway
    char job[CN_NAME_SIZE];
};

// Takes the path of a state directory apart, else its path without links and dots. Returns false
// when it is not that of a submitted job: a gateway's own state may lie in a folder jobs, too, so
// the ledger of the gateway has to know the job, unless the ledger cannot be read. state is the
// path that people know.
bool cn_job_place_find(const char *state, struct cn_job_place *place);

// Returns CN_ENOTFOUND when the ledger in the state directory gateway has no job of this name, or
// is not there, and another error when it cannot be read.
cn_err cn_job_place_look(const char *gateway, const char *job);

// Sets gateway to the path under which this process reaches the state of the gateway, with the
// rights of its owner (store/state_owner.h). Call it after those of the job's state were taken.
cn_err cn_job_place_reach(const struct cn_job_place *place, char gateway[CN_PATH_SIZE]);
