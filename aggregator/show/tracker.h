// tracker.h - remembers which boards changed since an earlier answer.
//
// Each change of any board takes the next number. Numbers begin with the date, so they are larger
// after a restart, and a reader that asks with a number from before it gets all boards.
// Threading: none.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_show_tracker { // all zero at first
    uint64_t first;      // number at the start; 0: not started
    uint64_t newest;     // number of the newest change
    struct cn_show_mark {
        uint64_t hash;    // of what was last said about the board
        uint64_t changed; // number of its newest change
    } * marks;            // owned; one for each board, in the order of enrolment
    size_t count;
};

// Prepares for count boards. Boards are never removed from a ledger, so marks stay in place.
cn_err cn_show_tracker_begin(struct cn_show_tracker *tracker, size_t count, uint64_t date_ms);
void cn_show_tracker_deinit(struct cn_show_tracker *tracker);

// Takes what is said about a board now. Returns the number of its newest change.
uint64_t cn_show_tracker_note(struct cn_show_tracker *tracker, size_t board, const void *text,
                              size_t size);

// Returns since, after which changes are new to the reader, or 0 when the reader needs all boards.
uint64_t cn_show_tracker_known(const struct cn_show_tracker *tracker, uint64_t since);
