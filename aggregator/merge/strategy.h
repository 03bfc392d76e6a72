// strategy.h - turns the step that the model takes into its next version.
//
// server_optimizer.h turns the mean of a round's updates into the step. Publishing turns the step
// into the frame that boards fetch. The aggregator adds to its own weights exactly what the frame
// decodes to. It keeps what compression left out for the next round (DoubleSqueeze, Tang et al.
// 2019). So it and all boards hold the same bits. Pure functions on arrays of layout->total floats.
#pragma once

#include "runtime/update/residual.h"

// Makes the next version's frame, weights and residual:
//
//   q = step + residual; out gets ENCODE(q)
//   weights = base + DECODE(out); with header->rounded, rounded to a snapshot
//   next = q - DECODE(out); with header->rounded, q - (weights - base)
//
// header->rule is the job's rule down, header->group is "", and header->base is the digest of
// base's version. step is left as q. Errors are those of cn_residual_encode, and CN_EDIVERGED when
// a new weight is not finite. After an error out has its earlier size, and weights is unchanged or
// equal to base.
cn_err cn_strategy_publish(const struct cn_update_header *header, const struct cn_layout *layout,
                           const float *base, float *step, const float *residual, float *weights,
                           float *next, struct cn_buffer *out);

// Says whether a version made from these can be rounded, whatever encoding does to the step. A
// snapshot holds values of up to 16.
bool cn_strategy_may_round(const struct cn_layout *layout, const float *base, const float *step,
                           const float *residual);
