// strategy.h - from the step that the model takes to its next version.
//
// server_optimizer.h turns the mean of a round's updates into the step. Publishing turns the step
// into the frame that boards fetch. The aggregator adds to its own weights exactly what the frame
// decodes to, and keeps what compression left out for the next round (DoubleSqueeze, Tang et al.
// 2019), so that it and all boards hold the same bits. Pure functions on arrays of layout->total
// floats.
#pragma once

#include "runtime/update/residual.h"

// q = step + residual; out gets ENCODE(q); weights = base + DECODE(out); next = q - DECODE(out).
// With header->rounded, weights is rounded to its snapshot and next = q - (weights - base).
// header->rule is the job's rule down, its group is "" and its base the digest of base's version.
// step is left as q. On an error (those of cn_residual_encode) nothing is appended and weights is
// as it was. CN_EDIVERGED also when a new weight is not finite.
cn_err cn_strategy_publish(const struct cn_update_header *header, const struct cn_layout *layout,
                           const float *base, float *step, const float *residual, float *weights,
                           float *next, struct cn_buffer *out);

// Whether a version made of these can be rounded, whatever encoding does to the step: a snapshot
// holds values of up to 16.
bool cn_strategy_may_round(const struct cn_layout *layout, const float *base, const float *step,
                           const float *residual);
