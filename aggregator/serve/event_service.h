// event_service.h - the events of a running aggregator: finds them, keeps them, writes them to a
// file and tells them to the site's program.
//
// Once a second the service compares the run and the boards with their states at the last look. So
// no other part of the program has to report anything, and a state that begins and ends between two
// looks is no event. Threading: that of the run.
#pragma once

#include "aggregator/serve/event_audit.h"
#include "aggregator/serve/event_file.h"
#include "aggregator/serve/event_hook.h"
#include "aggregator/serve/event_run.h"
#include "aggregator/serve/metrics.h"

#define CN_EVENT_LOOK_MS 1000
#define CN_EVENT_BOARD_MS 600000 // period of CN_EVENT_BOARD_MAX
#define CN_EVENT_BOARD_MAX 4     // most events that a board causes in a period
// After a restart: a board's return in this time is no event, and its absence is one from then on.
#define CN_EVENT_RESTART_MS 120000

struct cn_event_sources { // borrowed until close
    const struct cn_settings *settings;
    const struct cn_job *job;
    struct cn_ledger *ledger;
    struct cn_roster *roster;
    struct cn_model_store *models;
    struct cn_run *run;
    const struct cn_live_job *live;
};

struct cn_event_service { // zero it before use
    struct cn_event_sources sources;
    struct cn_events events;
    struct cn_event_file file;
    struct cn_event_hook hook;
    struct cn_event_audit audit;   // commands of other processes
    uint64_t (*date_ms)(void);     // milliseconds since 1970
    uint64_t opened_ms, looked_ms; // clock
    bool restarted;                // the file had events of an earlier program
    struct cn_event_run run;       // of the gateway's own job
    enum cn_event_disk { CN_EVENT_DISK_WIDE, CN_EVENT_DISK_NEAR, CN_EVENT_DISK_BELOW } disk;
    struct cn_event_mark {
        bool known;    // the board was looked at
        bool was_here; // an earlier program knew the board, and its newest event is no trouble
        enum cn_board_condition state; // state in the board's newest event
        uint64_t fault_hash;           // hash of the error in the board's newest event
        uint64_t window_ms;            // clock; when the period of count began
        uint32_t count;                // events of the board in this period
        uint64_t hook_ms;              // clock; when the hook was last told of the board; 0: never
        enum cn_board_condition hook_state; // state that the hook was told then
        uint64_t deferred;                  // newest event that the hook was not told yet; 0: none
        uint64_t twice_ms; // clock of the newest sign of two processes that was seen; 0: none
    } * marks;             // owned; one for each board, in the order of enrolment
    size_t mark_count;
};

// Begins with the events that the file has. date_ms NULL: the machine's clock gives the dates.
void cn_event_service_open(struct cn_event_service *service, const struct cn_event_sources *sources,
                           uint64_t (*date_ms)(void), uint64_t now_ms);
// Starts the hook for the oldest event that waits, unless it runs. Frees what the service owns.
void cn_event_service_close(struct cn_event_service *service, uint64_t now_ms);

// Looks for events. state is that of the run now; trouble says why its store fails, or is CN_OK.
// quiet: no job goes on, so boards leave, which is no event.
void cn_event_service_step(struct cn_event_service *service, const struct cn_run_state *state,
                           cn_err trouble, bool quiet, uint64_t now_ms);

// Looks for events of a submitted job whose run is open. Call it after each step. watch belongs to
// the job; closing the run zeroes it, and later changes are no events.
void cn_event_service_job(struct cn_event_service *service, struct cn_event_run *watch,
                          const char *job, const struct cn_event_run_source *from, uint64_t now_ms);
// Looks once more, before the run of the job is closed.
void cn_event_service_job_last(struct cn_event_run *watch, const struct cn_event_run_source *from,
                               uint64_t now_ms);

// Adds an event that another part of the program knows of, such as a person's command.
void cn_event_service_add(struct cn_event_service *service, const struct cn_event_facts *facts,
                          uint64_t now_ms);

// Adds an event about a person's command. service is a struct cn_event_service. job is the
// submitted job that the command is about; NULL: none.
void cn_event_service_note(void *service, const char *command, const char *job, const char *answer);

// In event_boards.c: looks at all boards. With quiet, takes their states without an event.
void cn_event_boards_look(struct cn_event_service *service, bool quiet, uint64_t now_ms);

// For event_boards.c: stores an event without telling the hook. Returns NULL when memory is short.
const struct cn_event *cn_event_service_store(struct cn_event_service *service,
                                              const struct cn_event_facts *facts, uint64_t now_ms);
