// session_data.h - the samples of a session: the files of its data set and the shards of a round.
//
// Shards come and go while a board runs; a round keeps the shards that it began with. Their list is
// stored before the round trains (the file "data.list", runtime/round/CHECKPOINT.md), so that a
// resumed round has the same samples. Private to runtime/round/session/session*.c.
#pragma once

#include "runtime/round/session/session.h"

// Opens the data set. Uses the shards of the stored list if it belongs to this run.
cn_err cn_session_open_data(struct cn_session *session, struct cn_diag *diag);

// Selects the shards of a round: the stored list if it is of this round, else the shards that are
// there now, whose list is then stored. Does nothing for a set of plain files.
cn_err cn_session_take_files(struct cn_session *session, uint32_t round);
