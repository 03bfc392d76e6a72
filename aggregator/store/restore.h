// restore.h - what a run does before it opens a ledger that may be an older copy of itself.
#pragma once

#include "aggregator/store/ledger.h"

// Revokes the boards that were revoked after the copy was made (revocations.h). restored: begins
// another lineage. Reports to standard error what a person can mend.
cn_err cn_restore_ledger(struct cn_ledger *ledger, const char *state, bool restored);

// Adds a board's key to the list beside the state, before the ledger revokes it: a kill between the
// two leaves a board that the next run revokes. A list that cannot be written is a warning.
void cn_restore_note_revoked(struct cn_ledger *ledger, const char *state, const char *board);
