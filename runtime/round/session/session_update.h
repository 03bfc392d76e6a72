// session_update.h - functions that the files of a session share: room on the disk, the rows of a
// state, and a round's update. Private to runtime/round/session/session*.c.
#pragma once

#include "runtime/round/session/session.h"

// Returns the number of steps of the run before the next one, on whichever members.
uint64_t cn_session_steps_before(const struct cn_session *session);

// cn_session_has_room returns whether the profile leaves room on the disk for a state.
// cn_session_note_saved records and logs the result of a save.
bool cn_session_has_room(const struct cn_session *session);
void cn_session_note_saved(struct cn_session *session, cn_err saved);

// Opens the trainer again, with room for one of `shards` shares of the parts that the stage
// divides.
cn_err cn_session_reopen_trainer(struct cn_session *session, uint32_t shards, uint32_t stage);

// The residual, in session_residual.c. cn_session_forget_waiting empties it of changes that wait to
// be sent. cn_session_decay_residual reduces one that has waited long: it was meant for weights
// that have changed since. Local statistics stay as they are in both.
void cn_session_forget_waiting(struct cn_session *session);
void cn_session_decay_residual(struct cn_session *session);

// Records the newest counted update. If the group delivered it without this board's frame, this
// board's residual was part of it and is forgotten.
void cn_session_note_newest(struct cn_session *session, const struct cn_decision *newest);

// Allocates a row of zeros unless there is one.
cn_err cn_session_allocate(float **array, size_t total);
cn_err cn_session_allocate_residual(struct cn_session *session);

// Allocates the optimizer's state of the checkpoint as zeros unless there is one; frees it; copies
// it from the trainer.
cn_err cn_session_allocate_optimizer(struct cn_session *session);
void cn_session_release_optimizer(struct cn_session *session);
cn_err cn_session_keep_optimizer(struct cn_session *session);

// Writes what the round has trained (weights - base) to `to`. Local statistics are taken relative
// to the residual, which holds their earlier part.
cn_err cn_session_change(struct cn_session *session, float *to);

// Encodes change + residual by the rule of the round. The part that the frame leaves out becomes
// next_residual. Change and next_residual reuse the memory of the held weights and the residual, so
// no more rows are held than in a step. After CN_EDIVERGED and CN_ERANGE the residual is unchanged,
// but the held weights are not.
cn_err cn_session_encode(struct cn_session *session, struct cn_buffer *frame);

// Keeps the optimizer's momentum after the round, except where values were sent: momentum would
// send them again (momentum-factor masking, Lin et al. 2018).
cn_err cn_session_keep_momentum(struct cn_session *session);
