// session_shards.h - trains a group's model with a share of the state on each member (ZeRO stages 1
// to 3).
//
// A member reduces the gradient of its share only, applies it, and gathers the others' weights:
// after the step, or in stage 3 bucket by bucket when a pass needs them. So no member holds the
// whole state. Every few seconds all members gather the state together, and each stores the whole
// of it. Between two stores the held state does not change; the steps since then count as ahead.
// After a failure all members return to the held state and train those steps again. The result is
// the same while the members are the same.
//
// Private to runtime/round.
#pragma once

#include "runtime/round/session/session.h"

// Returns whether this board trains with a share now.
bool cn_session_is_sharded(const struct cn_session *session);

// Gives the trainer the plan's share of the held state, with memory for this share only.
cn_err cn_session_take_share(struct cn_session *session);

// Returns whether each micro-batch is reduced separately, as from stage 2 on. Then
// cn_session_accumulate_shared accumulates a step; first is the number of its first batch.
bool cn_session_shares_gradients(const struct cn_session *session);
cn_err cn_session_accumulate_shared(struct cn_session *session, uint64_t first,
                                    struct cn_metrics *metrics);

// Checks this board's share of the reduced gradient before the vote. Sets *finite to false if a
// number of it is not finite.
cn_err cn_session_check_share(struct cn_session *session, struct cn_collective *collective,
                              bool *finite);

// Clips the share by the norm of the whole gradient. Call it after the vote, from stage 2 on.
cn_err cn_session_clip_share(struct cn_session *session, struct cn_collective *collective,
                             double weight);

// Gathers the weights of all shares after the optimizer.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective);

// Gathers one row of the state from all shares. row has room for all of its values.
enum cn_session_row { CN_ROW_WEIGHTS, CN_ROW_OPTIMIZER, CN_ROW_SECOND };
cn_err cn_session_gather_row(struct cn_session *session, struct cn_collective *collective,
                             enum cn_session_row what, float *row);

// In stage 3, sets held.weights to the trained weights at the end of a round.
cn_err cn_session_bring_weights(struct cn_session *session, struct cn_collective *collective);

// Writes the trained weights to `to`. In stage 3 call cn_session_bring_weights before.
cn_err cn_session_get_weights(struct cn_session *session, float *to);
