// tensor_rules.h - a job's settings for single tensors: which never travel (local_tensors.h), which
// travel as signs, and densities and priorities in top-k.
//
// Only encoders use densities and priorities; a decoder needs neither (UPDATE.md). Threading: none.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

// Sets density and priority of the tensors that the job names, and resets those of all others. Of
// several entries that match a tensor the last one counts. Sets which tensors never travel, and
// which ones travel as signs by update.small. Returns
// CN_ENOTFOUND, with a line in diag, for an entry that matches no trained tensor of 1024 values or
// more that travels, since it is meant for another model. Returns CN_EINVAL for a malformed entry.
// Returns errors of cn_local_tensors_set.
cn_err cn_tensor_rules_set(struct cn_layout *layout, const struct cn_job *job,
                           struct cn_diag *diag);

// Returns whether updates of this layout have small tensors as signs (the flag "small" of
// UPDATE.md).
bool cn_tensor_rules_sign(const struct cn_layout *layout);
