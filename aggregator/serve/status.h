// status.h - what a running aggregator tells other programs on its machine.
//
// The file is "status.json" in the state directory, replaced about once a second. It is not synced
// to disk, because it is worth nothing after a restart of the machine. Its times are those of
// cn_platform_now_ms, a clock that all programs share. Durable facts come from the ledger.
#pragma once

#include "aggregator/show/live.h"

#define CN_STATUS_FILE "status.json"

// Writes the file. The caller may ignore an error.
cn_err cn_status_write(const char *directory, const struct cn_roster *roster,
                       const struct cn_run_state *state, uint64_t now_ms);

// Fills live in from the running aggregator itself, without the file. Call deinit in any case.
cn_err cn_status_gather(const struct cn_roster *roster, const struct cn_run_state *state,
                        struct cn_live_state *live);

// Reads what a running aggregator wrote. live is zeroed when there is no file. Call deinit in any
// case.
cn_err cn_status_read(const char *directory, uint64_t now_ms, struct cn_live_state *live);
void cn_status_deinit(struct cn_live_state *live);

// Reads the bytes that the last program counted, up to at most a second before it ended. Sets zeros
// when it wrote nothing.
void cn_status_read_traffic(const char *directory, struct cn_run_traffic *traffic);
