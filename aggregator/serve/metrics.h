// metrics.h - what a running aggregator knows, as metrics of Prometheus.
//
// docs/metrics.md lists them. A metric whose value is not known is left out. No label is text of a
// board, a digest, a round or a version. The text is made from memory; only the score of a version
// comes from the ledger, by way of the run. Threading: that of the run.
#pragma once

#include "aggregator/run/run.h"
#include "runtime/base/metric_text.h"
#include "transport/coap/coap_server.h"

struct cn_metrics_source {
    const struct cn_job *job; // borrowed, as all pointers here
    const struct cn_run_state *state;
    const struct cn_run_counts *counts;
    const struct cn_roster *roster;
    const struct cn_spool *spool;
    const struct cn_coap_server_stats *server;
    const struct cn_coap_server *boards; // has the bytes of each board; NULL: not known
    const struct cn_histogram *pauses;   // of the loop, in seconds
    const char *release;
    uint64_t run;          // id
    uint32_t version;      // the newest
    uint64_t disk_free;    // bytes; 0: not known
    uint64_t disk_reserve; // bytes
    uint64_t retries;      // times that the run waited after an error of its store
    bool store_up;         // the last attempt to advance the run succeeded
    bool over;             // no job of the gateway goes on, so boards may leave
    uint32_t board_series; // most enrolled boards with metrics of their own
    uint64_t now_ms;       // clock
};

// Writes all metrics. Returns CN_ERANGE or CN_ENOMEM of the buffer.
cn_err cn_metrics_write(const struct cn_metrics_source *source, struct cn_buffer *out);

// The state of a board, as monitors count it.
enum cn_board_condition {
    CN_CONDITION_LIVE,   // heard, or reported by its leader, within two minutes
    CN_CONDITION_SILENT, // was heard before
    CN_CONDITION_PAUSED, // pauses by a rule of its profile, as it said
    CN_CONDITION_FAILED, // cannot train, as it said
    CN_CONDITION_NEVER,  // not heard since the start
    CN_CONDITION_REVOKED,
    CN_CONDITION_GONE, // silent or never, while no job goes on
    CN_CONDITION_COUNT,
};

// In metrics_boards.c: returns the state of a board while a job goes on, so never GONE.
enum cn_board_condition cn_board_condition_of(const struct cn_roster_board *board, uint64_t now_ms);

// In metrics_boards.c: metrics of the boards together, and of each one.
void cn_metrics_write_boards(const struct cn_metrics_source *source, struct cn_metric_text *text);
