// local_tensors.h - which tensors of a model never travel: personal layers and frozen ones.
//
// Boards and the aggregator find them from the same job and layout, so no update names them.
// Threading: none.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

// The digest of the tensors that stay is the SHA-256 of the graph's digest and their values in the
// order of the layout, as little-endian float32.

#define CN_LOCAL_TEXT_SIZE 512 // bytes of a list of tensors for people

// Sets local and stays of each tensor by update.local, update.statistics and update.frozen. Returns
// CN_ENOTFOUND, with a line in diag, for a pattern of update.local that matches no tensor, or
// CN_EINVAL when no tensor would be left to train together.
cn_err cn_local_tensors_set(struct cn_layout *layout, const struct cn_job *job,
                            struct cn_diag *diag);

// Returns whether updates of this layout leave tensors out (the flag "stay" of UPDATE.md).
bool cn_local_tensors_stay(const struct cn_layout *layout);

// Computes the digest of the tensors that stay, from a row of weights.
void cn_local_tensors_digest(const struct cn_layout *layout, const uint8_t graph[CN_DIGEST_SIZE],
                             const float *weights, uint8_t digest[CN_DIGEST_SIZE]);

// Writes the number of tensors that each group keeps for itself, the number of their values, and
// their names: "2 tensors of 650 values: fc2.weight, fc2.bias". Long lists end with "and N more".
// Writes "" when there is none.
void cn_local_tensors_text(const struct cn_layout *layout, char text[CN_LOCAL_TEXT_SIZE]);
