// session_update.h - the part of a session between the order for a round and its frame. Private to
// runtime/round/session/session*.c.
#pragma once

#include "runtime/round/session/session.h"

// Steps of the run before the one that comes next, whoever trained them.
uint64_t cn_session_steps_before(const struct cn_session *session);

// Whether the profile leaves room on the disk for a state; what became of a save.
bool cn_session_has_room(const struct cn_session *session);
void cn_session_note_saved(struct cn_session *session, cn_err saved);

// Opens the trainer anew, with room for one of so many shares of what the stage shares out.
cn_err cn_session_reopen_trainer(struct cn_session *session, uint32_t shards, uint32_t stage);

// Empties the residual of what waits to be sent; local statistics stay.
void cn_session_forget_waiting(struct cn_session *session);

// A row of zeros unless there is one.
cn_err cn_session_allocate(float **array, size_t total);
cn_err cn_session_allocate_residual(struct cn_session *session);

// The optimizer's state of the checkpoint: zeros unless there is one; none; that of the trainer.
cn_err cn_session_allocate_optimizer(struct cn_session *session);
void cn_session_release_optimizer(struct cn_session *session);
cn_err cn_session_keep_optimizer(struct cn_session *session);

// to = what the round trained, less what the residual already has of it.
cn_err cn_session_change(struct cn_session *session, float *to);

// change + residual, encoded by the rule of the round; what that leaves out becomes next_residual.
// Both take the memory of the held weights and of the residual, so that no more rows are held than
// in a step. After CN_EDIVERGED and CN_ERANGE the residual is what it was; the weights are not.
cn_err cn_session_encode(struct cn_session *session, struct cn_buffer *frame);

// The optimizer's momentum after the round, without that of the values that were sent: they would
// be sent again by it (momentum-factor masking, Lin et al. 2018).
cn_err cn_session_keep_momentum(struct cn_session *session);
