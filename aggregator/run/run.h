// run.h - the run as a state machine: opens rounds, invites groups, closes, merges, ends.
//
//   GATHER --enough groups are heard--> OPEN --quorum--> CLOSING --version is durable--> MEASURE
//      ^                                 deadline without quorum: extended                  |
//      +------------------------------------------------------------------------------------+-->
//      ENDED
//
// All that matters is in the ledger; open is recovery. Time comes in as an argument, so the whole
// machine runs under a fake clock. Deadlines start anew with the program: no clock survives a boot.
// Threading: none. Nothing blocks longer than a merge.
#pragma once

#include "aggregator/merge/merge.h"
#include "aggregator/run/score.h"
#include "aggregator/store/model_store.h"
#include "aggregator/store/roster.h"
#include "aggregator/store/spool.h"
#include "runtime/port/link.h"
#include "runtime/update/update.h"

enum cn_run_phase {
    CN_RUN_GATHER,  // waits for groups
    CN_RUN_OPEN,    // takes updates
    CN_RUN_CLOSING, // makes the version; tried again after an error
    CN_RUN_MEASURE, // the version is evaluated before the next round may open
    CN_RUN_ENDED,
};

// Evaluates a version beside the run. NULL functions are not allowed; see evaluate.h.
struct cn_run_measure {
    void *context;
    // Starts evaluating; CN_EAGAIN while another version is being evaluated.
    cn_err (*start)(void *context, uint32_t version, const float *weights, uint64_t now_ms);
    // CN_OK with a result, CN_EAGAIN while one is coming, CN_ENOTFOUND when nothing was started,
    // anything else: it failed and is over.
    cn_err (*poll)(void *context, uint64_t now_ms, uint32_t *version,
                   struct cn_ledger_metrics *metrics);
};

struct cn_run_traffic {
    struct cn_link_bytes in, out;
};

struct cn_run_config {
    const struct cn_job *job;
    struct cn_ledger *ledger; // all borrowed
    struct cn_store *store;
    struct cn_roster *roster;
    struct cn_spool *spool;
    struct cn_model_store *models;
    const struct cn_run_measure *measure; // NULL when the job has no central set
    uint64_t live_ms;                     // a group heard within this time can be invited
    uint64_t settle_ms; // with a quorum there, wait so long for more groups before the first round
    struct cn_run_traffic earlier; // of earlier programs; the ledger may know of more messages
    void *context;
    // The round as boards see it has changed.
    void (*changed)(void *context);
    // Bytes since the program started.
    void (*traffic)(void *context, struct cn_run_traffic *traffic);
};

#define CN_RUN_WARNING 160

struct cn_run_state { // for people
    enum cn_run_phase phase;
    uint32_t round; // open or next
    uint32_t selected, accepted;
    uint64_t remaining_ms;
    struct cn_run_traffic traffic; // of the whole run, over restarts
    struct cn_merge_cuts cuts;     // of the newest version, if it was made by this program
    char warning[CN_RUN_WARNING];  // a version is far worse than its parent; "": none
    const char *end_reason;        // ENDED
    struct cn_run_progress progress;
};

struct cn_run;

cn_err cn_run_open(const struct cn_run_config *config, uint64_t now_ms, struct cn_run **run);
void cn_run_close(struct cn_run *run);

// Does what is due. Call it every 50 ms or so. An error is one that waiting will not mend.
cn_err cn_run_tick(struct cn_run *run, uint64_t now_ms);

void cn_run_get_state(const struct cn_run *run, uint64_t now_ms, struct cn_run_state *state);

// The round as this group sees it.
cn_err cn_run_describe(struct cn_run *run, const char *group, uint64_t now_ms,
                       struct cn_round_info *info);

// What is decided about a frame before its first byte: status->decided is false when it may come.
// The reason is for the board's log.
cn_err cn_run_judge(struct cn_run *run, const char *group,
                    const struct cn_declare_request *declared, struct cn_upload_status *status);

// Decides on an upload that is complete: checks the frame, makes it durable, writes the ledger. The
// upload is gone when status->decided is set or an error other than CN_EAGAIN is returned.
// CN_EDIGEST: the bytes are not what was declared. CN_ENOSPC, CN_EIO, CN_EAGAIN: come again.
cn_err cn_run_accept(struct cn_run *run, struct cn_spooled *upload,
                     struct cn_upload_status *status);
