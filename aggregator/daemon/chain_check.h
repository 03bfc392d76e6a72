// chain_check.h - says whether a job's pipeline fits its model and the boards that are enrolled.
//
// A job that is not cut fits always. Boards check the same when they get a job, and end with an
// error. Here a person hears of it before the job is any round's.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "runtime/base/diag.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/profile/job.h"

// Checks whether the model can be cut as the job says. CN_EINVAL or CN_ENOTSUP with the line that
// boards print; CN_ENOMEM.
cn_err cn_chain_check_cut(const struct cn_onnx *onnx, const struct cn_job *job,
                          struct cn_diag *refused);

// Compares the boards that a chain needs with those of each group. Adds a line to refused, and
// returns CN_EINVAL, when there are groups and all are too small. Adds a line to warned when some
// of several are: these wait. Returns CN_OK without any group, since boards may be enrolled later.
cn_err cn_chain_check_groups(struct cn_ledger *ledger, const struct cn_job *job,
                             struct cn_diag *refused, struct cn_diag *warned);
