// server_optimizer.h - from the mean of a round's updates to the step that the model takes.
//
// The mean points towards the new weights. Plain averaging takes it as the step (FedAvg, McMahan et
// al. 2017); the other optimizers see it as minus a gradient: FedAvgM (Hsu et al. 2019), Nesterov
// momentum as in DiLoCo (Douillard et al. 2023, algorithm 1), and FedAdagrad, FedAdam and FedYogi
// (Reddi et al. 2021, algorithm 2), which have no bias correction.
//
// Every operation is one float32 operation in the order given here, so that replay and a second
// implementation reach the same bits. With d = the mean, lr = the rate, b = momentum, b1 and b2 =
// the betas, c1 = 1 - b1, c2 = 1 - b2 (both subtracted in double) and e = epsilon:
//
//   fedavg:     step = lr * d
//   fedavgm:    m = (b * m) + d, step = lr * m
//   nesterov:   m = (b * m) + d, step = lr * ((b * m) + d)
//   fedadagrad: q = d * d, v = v + q, step = (lr * d) / (sqrt(v) + e)
//   fedadam:    m = (b1 * m) + (c1 * d), q = d * d, v = (b2 * v) + (c2 * q),
//               step = (lr * m) / (sqrt(v) + e)
//   fedyogi:    m and step as in fedadam, q = d * d, v = v - ((c2 * q) * sign(v - q))
//
// m begins with 0 and v with e * e. A step is limited to the largest value of an update, 16.
// Running statistics (CN_TENSOR_STAT) take the mean as their step in every optimizer: a variance
// that momentum moves could become negative.
//
// The state of an optimizer is its rows, m first, then v; each is layout->total floats. Coordinates
// of statistics keep the initial values there. Pure functions. Threading: none.
#pragma once

#include "runtime/engine/layout.h"
#include "runtime/profile/job.h"

// Returns the number of rows that the optimizer keeps between rounds: 0 to 2.
size_t cn_server_rows(enum cn_server_optimizer optimizer);

// Returns the rate: that of server, or the default of its optimizer.
double cn_server_rate(const struct cn_server *server);

// Fills state, cn_server_rows rows of layout->total floats, as it is before the first round.
void cn_server_begin(const struct cn_server *server, const struct cn_layout *layout, float *state);

// Replaces mean by the step and moves state on by one round.
void cn_server_step(const struct cn_server *server, const struct cn_layout *layout, float *mean,
                    float *state);
