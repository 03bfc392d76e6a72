// session_store.h - gathers and stores the held state of members with shares.
//
// Between two states that all members gather and store together, the held state does not change.
// Arrays of it that the trainer also has need not be in memory (session_shards.h). Private to
// runtime/round.
#pragma once

#include "runtime/round/session/session.h"

// Gathers all shares into the held state of every member that trains, in memory.
cn_err cn_session_gather(struct cn_session *session, struct cn_collective *collective);

// Stores the held state, which was gathered or taken. Then frees the arrays that the trainer also
// has.
cn_err cn_session_store_held(struct cn_session *session);

// cn_session_store writes all shares to the disk of every member that trains, one row at a time;
// they become the held state. cn_session_store_due returns whether this board considers it due; the
// vote tells all members.
bool cn_session_store_due(const struct cn_session *session);
cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective);

// cn_session_first_weights sets held.weights to those of the version, before a round's first step.
// cn_session_let_go_first frees the held arrays of a member with a share, if the round begins
// without optimizer state.
cn_err cn_session_first_weights(struct cn_session *session);
void cn_session_let_go_first(struct cn_session *session);

// Reads the freed arrays of the held state from the disk. At a first step they are computed from
// the base instead.
cn_err cn_session_recall(struct cn_session *session);

// Adds the counts since the held state to it.
void cn_session_fold(struct cn_session *session);
