// session_shards.h - the optimizer's state of a group, a share on each member (ZeRO stage 1).
//
// A member reduces the gradient of its share only, applies it, and gathers the weights of the
// others. So no member holds the whole state, and what is stored is a state that was gathered: all
// members gather and store one together, every few seconds. Between two of them held stays what it
// is; steps count as ahead. After a failure all go back to it and train those steps again, with the
// same result while the members are the same. Any member's disk has the whole of it.
// Private to runtime/round.
#pragma once

#include "runtime/round/session.h"

// True while this board trains with a share.
bool cn_session_is_sharded(const struct cn_session *session);

// The trainer gets the plan's share of the held state, and memory for no more.
cn_err cn_session_take_share(struct cn_session *session);

// Between the backward pass and the vote: the share of the gradient that all members together have.
// finite is false when it has a number that is not.
cn_err cn_session_reduce_share(struct cn_session *session, struct cn_collective *collective,
                               float *gradients, bool *finite);

// After the optimizer: the weights of all shares.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective);

// All shares become the held state of every member that trains.
cn_err cn_session_gather(struct cn_session *session, struct cn_collective *collective);

// When it is time for it; due says whether this board thinks so, and is told to all by the vote.
bool cn_session_store_due(const struct cn_session *session);
cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective);

// The held state is complete again: its arrays come back from the disk.
cn_err cn_session_recall(struct cn_session *session);

// What was counted since the held state becomes a part of it.
void cn_session_fold(struct cn_session *session);
