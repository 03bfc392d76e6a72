// events.h - what happened at a gateway: the newest events, in memory.
//
// An event informs people and their programs; nothing in a run depends on it. Its sequence number
// is larger than that of each earlier event, also after a restart. Texts may come from boards, so
// they are cleaned here. Threading: none.
#pragma once

#include "aggregator/roster/fault.h"
#include "aggregator/show/json_text.h"
#include "runtime/base/member.h"
#include "runtime/profile/event_kinds.h"

#define CN_EVENTS_KEPT 10000 // in memory
#define CN_EVENTS_ANSWER 200 // most events in an answer

struct cn_event {
    uint64_t seq;     // from 1
    uint64_t date_ms; // milliseconds since 1970
    enum cn_event_kind kind;
    uint64_t code;              // of an error that a board reports: -cn_err; 0: none, or not known
    char job[CN_NAME_SIZE];     // submitted job whose run it is about; "": it is about none
    uint64_t run;               // id of that run; 0: not known. It is not in the file
    char subject[CN_NAME_SIZE]; // board, group or job; "": the gateway or the run
    char text[CN_FAULT_SIZE];   // a sentence without a full stop
};

// What an event says, without its number and its date. Texts are borrowed for a call.
struct cn_event_facts {
    enum cn_event_kind kind;
    const char *job; // as in struct cn_event; NULL: ""
    uint64_t run;    // as in struct cn_event
    const char *subject, *text;
    uint64_t code;
};

struct cn_events {         // zero it before use
    struct cn_event *ring; // owned; room for CN_EVENTS_KEPT; NULL before the first event
    uint64_t newest;       // sequence number of the newest event; 0: none yet
    size_t count;          // events in the ring
};

void cn_events_deinit(struct cn_events *events);

// Adds an event with the next sequence number. Cleans text, and cuts it if it is too long. Returns
// NULL when memory is short.
const struct cn_event *cn_events_add(struct cn_events *events, const struct cn_event_facts *facts,
                                     uint64_t date_ms);

// Adds an event of an earlier program. Its sequence number must be above newest, else nothing
// happens.
void cn_events_restore(struct cn_events *events, const struct cn_event *event);

// Returns the event with this sequence number, or NULL when it is not in memory.
const struct cn_event *cn_events_find(const struct cn_events *events, uint64_t seq);

// Write the members of one event, or an object with these members.
void cn_events_write_members(const struct cn_event *event, struct cn_json_text *json);
void cn_events_write(const struct cn_event *event, struct cn_json_text *json);

// Writes the members "events", "next" and "more" (JSON.md): at most CN_EVENTS_ANSWER events from a
// sequence number on. With from 0, writes the newest ones. job leaves out events about other jobs,
// "": about any submitted job; NULL: none is left out.
void cn_events_write_from(const struct cn_events *events, const char *job, uint64_t from,
                          struct cn_json_text *json);
