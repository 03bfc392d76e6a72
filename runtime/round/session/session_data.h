// session_data.h - the samples of a session: the files of its data set, and the shards of a round.
//
// Shards come and go while a board runs; a round keeps those that it began with. Their list is
// stored before the round trains (the file "data.list", runtime/round/CHECKPOINT.md), so that a
// round that is resumed has the same samples. Private to runtime/round/session/session*.c.
#pragma once

#include "runtime/round/session/session.h"

// Opens the data set, with the shards of the stored list if there is one of this run.
cn_err cn_session_open_data(struct cn_session *session, struct cn_diag *diag);

// The shards for a round: the stored ones if they are of this round, else those that are there now,
// which are stored. Does nothing for a set of plain files.
cn_err cn_session_take_files(struct cn_session *session, uint32_t round);
