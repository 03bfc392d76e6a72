// restore.h - what a run does with a ledger that may be an older copy of itself. Threading: none.
#pragma once

#include "aggregator/ledger/ledger.h"

// Revokes the boards that were revoked after the copy was made (revocations.h). If restored, also
// begins another lineage. Prints to standard error what a person can repair. An unreadable list of
// revocations is an error.
cn_err cn_restore_ledger(struct cn_ledger *ledger, const char *state, bool restored);

// Adds a board's key to the list beside the state directory. Call it before the ledger revokes the
// board: if the program is killed between the two, the next run revokes the board. A list that
// cannot be written gives a warning.
void cn_restore_note_revoked(struct cn_ledger *ledger, const char *state, const char *board);
