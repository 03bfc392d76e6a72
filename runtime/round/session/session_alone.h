// session_alone.h - a session without a group and an aggregator: its state is what the trainer
// holds.
//
// The weights of a round become the next version as they are, and nothing is sent, so there is no
// copy of any row beside those of the trainer: states go from its memory to the disk and back.
// Private to runtime/round.
#pragma once

#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/session/session.h"

bool cn_session_is_alone(const struct cn_session *session);

// Saves the held state with the trainer's rows. saved: what the disk said, which is no error here;
// errors are the device's, and the only copy of its rows may be torn then.
cn_err cn_session_save_rows(struct cn_session *session, cn_err *saved);

// The rows of a stored state that is the held one; what it does not have stays as it is.
cn_err cn_session_take_rows(struct cn_session *session, const struct cn_checkpoint_file *file);

// The trainer goes on with its rows where the held state says.
cn_err cn_session_go_on(struct cn_session *session);
