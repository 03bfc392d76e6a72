// http_show.h - what a running aggregator shows of one of its runs, as the JSON of show.h.
//
// Threading: that of the run.
#pragma once

#include "aggregator/roster/roster.h"
#include "aggregator/run/run.h"
#include "aggregator/serve/sensor_curves.h"
#include "aggregator/show/show.h"

// A run that goes on in this program. All pointers are borrowed.
struct cn_http_run {
    const struct cn_settings *settings;
    const struct cn_job *job;
    struct cn_ledger *ledger;
    struct cn_roster *roster;
    struct cn_run *run;
    size_t parameters;                     // values of the model
    uint64_t events;                       // sequence number of the newest event; 0: there is none
    uint32_t jobs;                         // of the gateway
    const struct cn_sensor_curves *curves; // NULL: none are kept for it
};

// What to show: the state (number: changes since this sequence number, with a tracker), the
// versions from number on, or the board with the name.
enum cn_http_view { CN_HTTP_STATE, CN_HTTP_VERSIONS, CN_HTTP_BOARD };

struct cn_http_wish {
    enum cn_http_view view;
    uint64_t number;
    const char *name;
    struct cn_show_tracker *tracker; // of CN_HTTP_STATE; NULL: all boards are written
};

// Errors: as show.h, and CN_ENOTFOUND when there can be no version with this number.
cn_err cn_http_show(const struct cn_http_run *from, const struct cn_http_wish *wish,
                    struct cn_buffer *out);
// As cn_http_show, of any source.
cn_err cn_http_show_source(const struct cn_show_source *source, const struct cn_http_wish *wish,
                           struct cn_buffer *out);
