// variate_fold.h - the server's control variate after a round (runtime/update/variate.h).
//
// It follows from the updates of the round, as the groups' own variates do. With, per value,
//
//   S    the server's variate as the boards had it: what its frame decodes to, or zeros in the
//        first round of an epoch
//   N    the groups of the epoch, or the updates of the round if these are more
//   n    the updates of the round that have values; those of mode skip change no variate
//   D    the distance of an update's steps (cn_variate_distance), L the least one of the round
//   U    2^24, or 2^31 / n rounded down if that is less
//
// the updates are added in whole numbers as in fold.h, each k = U * L / D times, rounded down and
// at least 1. M is that sum divided exactly by U * n and rounded once. Then, by float32 operations,
//
//   server = (server - part * S) - scale * M,  part = n / N,  scale = n / N / L
//
// part and scale are computed in double, from left to right, and rounded to float32. Whole updates
// count, whatever their weights and norms, since the groups compute theirs from them.
#pragma once

#include "aggregator/merge/merge.h"

// Changes server, which holds the parent's row, to the row of the version that is made of a round's
// updates. Returns CN_EFORMAT when the round has no epoch, or the error of reading an update.
cn_err cn_variate_fold(const struct cn_merge_config *config, const struct cn_model *parent,
                       float *server);
