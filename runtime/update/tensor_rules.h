// tensor_rules.h - what a job says of single tensors: a share and a priority of their own in top-k.
//
// They matter to encoders only; a decoder needs none of it (UPDATE.md). Threading: none.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

// Sets density and priority of the tensors that the job names; of entries that fit the same tensor
// the last one counts. CN_ENOTFOUND with a line in diag for an entry that no tensor with enough
// values fits: the job means another model. CN_EINVAL for what is no entry.
cn_err cn_tensor_rules_set(struct cn_layout *layout, const struct cn_job *job,
                           struct cn_diag *diag);
