// session_shards.h - the state of a group's model, a share on each member (ZeRO stages 1 to 3).
//
// A member reduces the gradient of its share only, applies it, and gathers the weights of the
// others: after the step, or in stage 3 bucket by bucket when a pass needs them. So no member holds
// the whole state, and what is stored is a state that was gathered: all members gather and store
// one together, every few seconds. Between two of them held stays what it is; steps count as ahead.
// After a failure all go back to it and train those steps again, with the same result while the
// members are the same. Any member's disk has the whole of it.
// Private to runtime/round.
#pragma once

#include "runtime/round/session/session.h"

// True while this board trains with a share.
bool cn_session_is_sharded(const struct cn_session *session);

// The trainer gets the plan's share of the held state, and memory for no more.
cn_err cn_session_take_share(struct cn_session *session);

// True when it reduces each micro-batch by itself, from stage 2 on: then this is a step's
// accumulation. first is the number of its first batch.
bool cn_session_shares_gradients(const struct cn_session *session);
cn_err cn_session_accumulate_shared(struct cn_session *session, uint64_t first,
                                    struct cn_metrics *metrics);

// Before the vote, when the gradient is reduced. finite is false when this board's share has a
// number that is not.
cn_err cn_session_check_share(struct cn_session *session, struct cn_collective *collective,
                              bool *finite);

// After the vote, from stage 2 on: by the norm of the whole gradient.
cn_err cn_session_clip_share(struct cn_session *session, struct cn_collective *collective,
                             double weight);

// After the optimizer: the weights of all shares.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective);

// A row of the state, made of all shares. There is room for all of its values.
enum cn_session_row { CN_ROW_WEIGHTS, CN_ROW_OPTIMIZER, CN_ROW_SECOND };
cn_err cn_session_gather_row(struct cn_session *session, struct cn_collective *collective,
                             enum cn_session_row what, float *row);

// With stage 3, at the end of a round: held.weights become those that were trained.
cn_err cn_session_bring_weights(struct cn_session *session, struct cn_collective *collective);

// The weights as trained, whatever the stage: in stage 3 after they were brought.
cn_err cn_session_get_weights(struct cn_session *session, float *to);
