// session_store.h - the held state of members with shares: gathered, stored, left to the disk.
//
// Between two states that all members gather and store together, held stays what it is, and what
// the trainer has of it need not be in memory, too (session_shards.h).
// Private to runtime/round.
#pragma once

#include "runtime/round/session/session.h"

// All shares become the held state of every member that trains, in its memory.
cn_err cn_session_gather(struct cn_session *session, struct cn_collective *collective);

// The held state, gathered or taken, goes to the disk; what the trainer has of it leaves memory.
cn_err cn_session_store_held(struct cn_session *session);

// All shares go to the disk of every member that trains, a row at a time, and become the held
// state. due says whether this board thinks that it is time for it, and is told to all by the vote.
bool cn_session_store_due(const struct cn_session *session);
cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective);

// Before a round's first step, where no optimizer's state is kept: the weights of the held state;
// and, of a member with a share, that they need not be in memory.
cn_err cn_session_first_weights(struct cn_session *session);
void cn_session_let_go_first(struct cn_session *session);

// The held state is complete again: its arrays come back from the disk, at a first step from the
// base.
cn_err cn_session_recall(struct cn_session *session);

// What was counted since the held state becomes a part of it.
void cn_session_fold(struct cn_session *session);
