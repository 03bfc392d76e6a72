// event_run.h - finds what happened in one run: rounds, versions, rejections, its end.
//
// A look compares the run with its state at the last look; the first look takes the present state,
// so that only later changes are told. Threading: that of the run.
#pragma once

#include "aggregator/run/run.h"
#include "aggregator/show/events.h"

#define CN_EVENT_SEEN 256 // number of rejections that are remembered

// A run as it is now; all pointers are borrowed for a look.
struct cn_event_run_source {
    const struct cn_job *job;
    struct cn_ledger *ledger;
    struct cn_model_store *models;
    struct cn_run *run;
    const struct cn_live_job *live; // NULL: the job's values do not change
    const struct cn_run_state *state;
    cn_err trouble; // why its store fails; CN_OK: it does not
};

// Takes an event.
typedef void cn_event_teller(void *context, const struct cn_event_facts *facts, uint64_t now_ms);

struct cn_event_run {       // state of a run at the last look; zero it before use
    bool known;             // the first look was made
    char job[CN_NAME_SIZE]; // a submitted job; "": the gateway's own
    cn_event_teller *tell;
    void *context; // passed to tell
    struct cn_run_state state;
    uint64_t extended, rejected;
    uint32_t version, settings;
    uint32_t measured; // newest version whose score was told, or was there at the first look
    cn_err trouble;
    uint64_t seen[CN_EVENT_SEEN]; // hashes of rejections that were told or are old
    size_t seen_count;
};

// Takes the present state of the run. An open round is told by the next look.
void cn_event_run_begin(struct cn_event_run *watch, const struct cn_event_run_source *from,
                        uint64_t now_ms);

// Tells what happened since the last look. The end of a submitted job is told by the queue.
void cn_event_run_look(struct cn_event_run *watch, const struct cn_event_run_source *from,
                       uint64_t now_ms);
