// status_print.h - prints a run for people, as `status` does.
#pragma once

#include <stdio.h>

#include "aggregator/show/live.h"

// Prints run, round and version. Prints the state of each board, with the reason why it is not in
// the round, and what became of each group's updates.
cn_err cn_status_print(struct cn_ledger *ledger, const struct cn_job *job,
                       const struct cn_live_state *live, uint64_t now_ms, bool json, FILE *stream);
