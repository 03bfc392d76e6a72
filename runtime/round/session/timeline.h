// timeline.h - writes a Chrome trace of steps: what each member of the group did when.
//
// The file is JSON in the "Trace Event Format" (array form), for chrome://tracing and Perfetto. A
// member is a process; its rows are 0 epochs, 1 compute, 2 wire, 3 votes, and of the board that
// writes also 4 rounds: what it does between the steps of two rounds. A member that holds a
// part of a model shows "F 3" and "B 3" for the passes of micro-batch 3, and "send F 3", "receive B
// 3" and so on for its messages. What it exchanges with members that hold a share of the part are
// "fetch weights 3", "reduce gradients 3" and "add replicas 3". All times are on the clock of the
// board that writes. Unless it is a pipe, the file is complete after each second, so that it can be
// read while the program runs or after it was killed. Once it has CN_TIMELINE_MAX bytes, nothing
// more is written and the log says so. Threading: one thread at a time.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

#define CN_TIMELINE_MAX (64 << 20) // bytes, about

struct cn_timeline;

// A span of time, in microseconds of the writer's clock since boot.
struct cn_timeline_span {
    const char *name; // must have no quotes and backslashes
    uint32_t member;  // index of the member in the group
    uint32_t row;
    int64_t begin_us, end_us;
    uint64_t number; // number of the step, round or epoch
    uint64_t bytes;  // bytes that travelled; 0: none
};

enum {
    CN_TIMELINE_EPOCHS,
    CN_TIMELINE_COMPUTE,
    CN_TIMELINE_WIRE,
    CN_TIMELINE_VOTES,
    CN_TIMELINE_ROUNDS,
};

// Creates the file.
cn_err cn_timeline_open(const char *path, struct cn_timeline **timeline);

// Completes and closes the file. Returns CN_EIO when something could not be written. Accepts NULL.
cn_err cn_timeline_close(struct cn_timeline *timeline);

// Names a member. Once per member is enough.
void cn_timeline_name(struct cn_timeline *timeline, uint32_t member, const char *name);

// Writes a span.
void cn_timeline_add(struct cn_timeline *timeline, const struct cn_timeline_span *span);
