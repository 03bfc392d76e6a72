// residual.h - error feedback: what compression left out is sent later.
//
// With change d, residual e and encoder C:  u = d + e,  sent = C(clip(u)),  e' = u - sent.
// clip limits to CN_UPDATE_VALUE_MAX, the most that travels: the rest follows in later rounds.
// (Seide et al. 2014; Karimireddy et al. 2019.) The new residual counts only when the receiver
// accepted the update; when it refused, all of d goes into it: e' = e + d = u. So both are kept
// until the outcome is known.
#pragma once

#include "runtime/update/update.h"

// u = change + residual, in place of change; encodes it into out and stores u - sent in next.
// CN_EDIVERGED when a value is not finite: nothing is appended. residual may be NULL for zeros.
cn_err cn_residual_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                          float *change, const float *residual, float *next, struct cn_buffer *out);
