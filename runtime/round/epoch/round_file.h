// round_file.h - the order of the round that a board has begun, on disk before its first step.
//
// The state is stored some seconds after a round began; a board that is killed before begins the
// round again, also while nobody can tell it of one. Specified in CHECKPOINT.md. Threading: that of
// the session.
#pragma once

#include "runtime/round/session/session.h"

// After cn_session_begin. A disk that does not take it is a warning.
void cn_round_file_save(const struct cn_session *session, const struct cn_round_order *order);

// Begins the stored round if it follows from the state that is held.
cn_err cn_round_file_resume(struct cn_session *session);
