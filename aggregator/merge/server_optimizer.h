// server_optimizer.h - turns the mean of a round's updates into the step that the model takes.
//
// The mean points towards the new weights. Plain averaging takes the mean as the step (FedAvg,
// McMahan et al. 2017). The other optimizers treat the mean as the negative of a gradient: FedAvgM
// (Hsu et al. 2019), Nesterov momentum as in DiLoCo (Douillard et al. 2023, algorithm 1), and
// FedAdagrad, FedAdam and FedYogi (Reddi et al. 2021, algorithm 2), which have no bias correction.
//
// Every operation is one float32 operation in the order given here, so that replay and a second
// implementation reach the same bits. Let d = the mean, lr = the rate, b = momentum, b1 and b2 =
// the betas, e = epsilon. c1 = 1 - b1 and c2 = 1 - b2 are subtracted in double. The last expression
// is the step.
//
//   fedavg      lr * d
//   fedavgm     m = (b * m) + d;                         lr * m
//   nesterov    m = (b * m) + d;                         lr * ((b * m) + d)
//   fedadagrad  q = d * d; v = v + q;                    (lr * d) / (sqrt(v) + e)
//   fedadam     m = (b1 * m) + (c1 * d); q = d * d;
//               v = (b2 * v) + (c2 * q);                 (lr * m) / (sqrt(v) + e)
//   fedyogi     m as in fedadam; q = d * d;
//               v = v - ((c2 * q) * sign(v - q));        the step as in fedadam
//
// m begins with 0 and v with e * e. A step is limited to 16 either way, the largest value of an
// update. For running statistics (CN_TENSOR_STAT) every optimizer takes the mean as the step:
// momentum could make a variance negative.
//
// The state of an optimizer is its rows, m first, then v, each of layout->total floats. The
// coordinates of statistics keep their initial values there. Pure functions. Threading: none.
#pragma once

#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

// Returns the number of rows that the optimizer keeps between rounds: 0 to 2.
size_t cn_server_rows(enum cn_server_optimizer optimizer);

// Returns the rate of server, or the default of its optimizer when none is set.
double cn_server_rate(const struct cn_server *server);

// Sets state, cn_server_rows rows of layout->total floats, to its values before the first round.
void cn_server_begin(const struct cn_server *server, const struct cn_layout *layout, float *state);

// Replaces mean with the step, and updates state for the next round.
void cn_server_step(const struct cn_server *server, const struct cn_layout *layout, float *mean,
                    float *state);
