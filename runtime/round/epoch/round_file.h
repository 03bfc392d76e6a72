// round_file.h - stores the order of the round that a board has begun, before its first step.
//
// The state is stored some seconds after a round began. A board that is killed before that begins
// the round again, even while neither the aggregator nor a member can name it. CHECKPOINT.md
// specifies the file. Threading: that of the session.
#pragma once

#include "runtime/round/session/session.h"

// Stores the order. Call it after cn_session_begin. If the disk fails, it logs a warning.
void cn_round_file_save(const struct cn_session *session, const struct cn_round_order *order);

// Begins the stored round if it follows from the held state.
cn_err cn_round_file_resume(struct cn_session *session);
