// status_boards.h - the part of `status` that says what each board is doing, and why.
#pragma once

#include <stdio.h>

#include "aggregator/ledger/ledger.h"
#include "aggregator/show/round_view.h"

struct cn_status_report {
    struct cn_ledger *ledger; // borrowed, as all pointers here
    const struct cn_job *job;
    const struct cn_live_state *live;
    uint64_t now_ms;
    bool json;
    FILE *stream;
    struct cn_round_view view;
    size_t hint;            // of cn_live_find
    uint32_t settings;      // first round of the settings that hold; 0: none are recorded yet
    uint32_t next_settings; // first round of settings that do not hold yet; 0: there are none
    uint32_t streak;        // number of newest versions in a row that the gate refused
};

// Prints a row, or with json an object, about one board. context is a struct cn_status_report.
cn_err cn_status_print_board(void *context, const struct cn_ledger_board *board);
