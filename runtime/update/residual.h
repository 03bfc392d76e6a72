// residual.h - error feedback: what compression left out is sent later.
//
// With change d, residual e and encoder C:  u = d + e,  sent = C(clip(u)),  e' = u - sent.
// (Seide et al. 2014; Karimireddy et al. 2019.) clip limits to CN_UPDATE_VALUE_MAX, the largest
// value in a frame; the rest follows in later rounds. If the receiver accepts the update, e' is the
// new residual. If it refuses, all of d goes into the residual: e' = e + d = u. So the caller keeps
// both rows until the outcome is known. Threading: none; no state is kept.
#pragma once

#include "runtime/update/update.h"

// Replaces change by u = change + residual, appends the frame of clip(u) to out and stores u - sent
// in next. Rows have layout->total values; residual may be NULL for zeros. Returns CN_EDIVERGED
// when a value is not finite, or an error of cn_update_encode; nothing is appended then.
cn_err cn_residual_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                          float *change, const float *residual, float *next, struct cn_buffer *out);
