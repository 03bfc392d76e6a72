// event_hook.h - runs the program of hooks.on_event for events.
//
// The program runs once for each event, which it gets in the environment and as JSON on standard
// input (docs/events.md). It runs once at a time, for hooks.limit at most. Up to
// CN_EVENT_HOOK_QUEUE events wait meanwhile. The training neither waits for the program nor depends
// on it. Threading: none.
#pragma once

#include "aggregator/show/events.h"
#include "runtime/base/log_limit.h"
#include "runtime/profile/profile.h"

#define CN_EVENT_HOOK_QUEUE 64

struct cn_event_hook {                            // zero it before use
    const struct cn_settings *settings;           // borrowed
    const char *job;                              // name; borrowed
    uint64_t run;                                 // id of the run
    struct cn_event waiting[CN_EVENT_HOOK_QUEUE]; // a ring
    size_t first, count;                          // of the events in waiting
    uint64_t left_out;         // events that did not fit since the last one that was told
    bool running;              // the program runs
    int64_t process;           // its process, if running
    struct cn_log_quota lines; // limits lines about the program
};

// Returns whether the profile wants the hook for this kind.
bool cn_event_hook_wants(const struct cn_event_hook *hook, enum cn_event_kind kind);

// Returns why the program of hooks.on_event cannot be run by this user, or NULL. The text is valid
// until the next call.
const char *cn_event_hook_fault(const struct cn_settings *settings);

// Logs that fault, if there is one.
void cn_event_hook_warn(const struct cn_settings *settings);

// Adds an event to those that wait. When the queue is full, the oldest one is left out.
void cn_event_hook_tell(struct cn_event_hook *hook, const struct cn_event *event);

// Logs a failure of the program after it has ended, and starts it for the next event. Call it at
// least once a second.
void cn_event_hook_step(struct cn_event_hook *hook, uint64_t now_ms);
