// waiting.h - what the log says while a round waits for groups, and how often.
//
// The first line is written at once, the next after a minute, and each further one after twice the
// time, at most an hour. Threading: none.
#pragma once

#include "aggregator/roster/roster.h"

struct cn_waiting {
    uint64_t pause_ms; // between the newest line and the next; 0: there was none
    uint64_t next_ms;  // clock; when the next line is due
};

// What a round waits for.
struct cn_waiting_round {
    const struct cn_roster *roster;
    uint32_t round;
    uint32_t needed; // groups
    uint32_t live;   // groups that are here
    uint64_t now_ms;
    uint64_t live_ms; // a board that was heard within this time is here
};

// Logs the line if it is due. From the second line on it names boards that are not here. Says
// nothing of a run whose groups all serve other jobs, because the gateway tells that.
void cn_waiting_tell(struct cn_waiting *waiting, const struct cn_waiting_round *round);
