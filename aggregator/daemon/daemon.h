// daemon.h - the parts of a running aggregator: opened in order, and closed.
//
// Threading: all parts belong to the thread of the program.
#pragma once

#include "aggregator/control/control.h"
#include "aggregator/daemon/job_set.h"
#include "aggregator/serve/event_service.h"
#include "aggregator/serve/http_service.h"
#include "aggregator/serve/report.h"
#include "aggregator/serve/resources.h"

// The parts, each after those that it uses, and what the loop of `run` remembers.
struct cn_daemon {
    const char *profile;     // path
    struct cn_job_run first; // the run of the profile's job; its ledger has the boards
    struct cn_roster *roster;
    struct cn_resources resources;
    struct cn_job_set jobs; // the first and those that were submitted
    struct cn_coap_server *server;
    struct cn_event_service events;
    struct cn_http_service http;
    struct cn_control *control;
    struct cn_report report;
    uint64_t started_ms; // clock; when the loop began
    uint64_t roster_ms;  // clock; when the roster was refreshed last; 0: not yet
    uint64_t status_ms;  // clock; when status.json was written last; 0: not yet
    uint64_t ended_ms;   // clock; when the end of the run was seen; 0: not yet
    bool over_at_start;  // the run had ended before this program started
    bool end_told;       // the end of the run is in the log, with its summary
    bool others_told;    // the end of all other jobs is in the log
    bool stops;          // a person asked for the end of the program over a control socket
};

// Opens all parts of a zeroed daemon for the run of a profile, and listens. restored: the state
// directory is an older copy of its run. Borrows profile and ports until close. Returns
// CN_EXIT_DONE or the exit code of the program, after it wrote what is wrong.
int cn_daemon_open(struct cn_daemon *daemon, const struct cn_ports *ports, const char *profile,
                   bool restored);

// Closes the parts that are open.
void cn_daemon_close(struct cn_daemon *daemon);

// Ends the sessions of a board that may no longer speak. context is the daemon.
void cn_daemon_drop_board(void *context, const char *board);

// Reads the boards and the jobs again if another process changed them, and ends the sessions of
// boards that may no longer speak.
cn_err cn_daemon_refresh(struct cn_daemon *daemon);

// In daemon_control.c: opens the control sockets, whose requests change the other parts.
cn_err cn_daemon_open_control(struct cn_daemon *daemon);
