// session_sets.h - which members do the work of a step: process sets at work in a session.
//
// Everything here is decided from what all members know alike: their facts, told when an epoch
// begins, the leader's sets, and where training stands. So all come to the same sets at the same
// step without asking. Private to runtime/round.
#pragma once

#include "runtime/round/session.h"

// After the members have one state, before anything else of an epoch: tells and hears the facts.
// CN_OK without a call where the job names no set.
cn_err cn_session_enter(struct cn_session *session, struct cn_collective *collective,
                        const struct cn_view *view);

// Before each step: who trains it. A member that is to train and has not yet the state of the
// others takes it.
cn_err cn_session_place(struct cn_session *session, struct cn_collective *collective);

// Afterwards all members have the state of those that trained. Nothing where all did.
cn_err cn_session_catch_up(struct cn_session *session, struct cn_collective *collective);

// The step that was placed has been trained; and: all members have one state.
void cn_session_stepped(struct cn_session *session);
void cn_session_alike(struct cn_session *session);

// True when this board is in one of the sets of a list; "" is every board.
bool cn_session_is_among(const struct cn_session *session, const char *sets);
