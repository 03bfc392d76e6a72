// residual.h - error feedback: what compression left out is sent later.
//
// With change d, residual e and encoder C:  u = d + e,  sent = C(u),  e' = u - sent.
// (Seide et al. 2014; Karimireddy et al. 2019.) The new residual counts only when the receiver
// accepted the update; when it refused, all of d goes into it: e' = e + d = u. So both are kept
// until the outcome is known.
#pragma once

#include "runtime/update/update.h"

// u = change + residual, in place of change, clipped to |u| <= CN_UPDATE_VALUE_MAX; encodes u into
// out and stores u - sent in next. CN_EDIVERGED when a value is not finite: nothing is appended.
cn_err cn_residual_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                          float *change, const float *residual, float *next, struct cn_buffer *out);
