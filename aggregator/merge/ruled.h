// ruled.h - makes the versions that a ruling decides, in place of merging a round's updates.
//
// The result depends only on the parent, the settings of the round and, for a rollback, on the
// weights of the earlier version: replay makes the same bits. next->number and next->parent are set
// as cn_merge_round sets them. An error leaves next empty. Threading: none.
#pragma once

#include "aggregator/merge/merge.h"

// Makes the version in place of one that the gate refused. It has the weights, the residual and the
// optimizer's state of its parent. Its delta is a frame that changes nothing (CN_UPDATE_SKIP).
cn_err cn_ruled_refuse(const struct cn_merge_config *config, const struct cn_model *parent,
                       struct cn_model *next);

// Makes a version with the weights of an earlier one. Its residual is zero, and the optimizer has
// its initial state. It has no delta, because parent + delta would rarely be these weights to the
// bit: boards fetch all of it.
cn_err cn_ruled_roll_back(const struct cn_merge_config *config, const struct cn_model *parent,
                          const float *weights, struct cn_model *next);
