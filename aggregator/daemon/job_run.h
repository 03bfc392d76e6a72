// job_run.h - a run with the parts that belong to it alone: profile, ledger, files, model, rounds.
//
// What does not depend on the run (boards, keys, sessions, sockets, the page) belongs to the
// daemon. Threading: that of the daemon.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/run/evaluate.h"
#include "aggregator/serve/resources.h"

struct cn_job_run {
    struct cn_setup setup;
    struct cn_live_job live;
    struct cn_spool *spool;
    struct cn_model_store *models;
    struct cn_evaluator *evaluator;
    struct cn_run_measure measure;
    struct cn_run *run;
    uint64_t retry_ms; // clock; the run is not advanced before
    cn_err trouble;    // error that was logged last; CN_OK: none
};

// What a run uses of its gateway.
struct cn_job_run_shared {
    const struct cn_ports *ports;
    struct cn_roster *roster;
    void *context; // passed to both functions, which struct cn_run_config describes
    void (*changed)(void *context);
    void (*traffic)(void *context, struct cn_run_traffic *traffic);
};

// Opens the parts of a run whose setup is open, with its model. Prints or logs what is wrong.
// Close it in any case.
cn_err cn_job_run_open(struct cn_job_run *run, const struct cn_job_run_shared *shared);
// Closes all parts, the setup included.
void cn_job_run_close(struct cn_job_run *run);

// Advances the run. An error that passes by itself, such as a full disk, is logged once, and the
// run pauses before it tries again. Returns other errors.
cn_err cn_job_run_tick(struct cn_job_run *run, uint64_t now_ms);
