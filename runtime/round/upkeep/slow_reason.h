// slow_reason.h - why a board may compute slower than it could, judged by its sensors.
//
// Members send the reason with each step's vote, so that any of them can report who is slow and
// why. No decision depends on it. Threading: none; pure.
#pragma once

#include <stddef.h>

#include "runtime/port/sensors.h"

enum cn_slow_reason {
    CN_SLOW_UNKNOWN,   // no sensor explains it
    CN_SLOW_THROTTLED, // throttled for heat or power; number: degrees Celsius, 0: not known
    CN_SLOW_CLOCK,     // slowed by its power mode or governor; number: percent of the full clock
    CN_SLOW_BATTERY,   // runs on battery; number: percent of charge left
    CN_SLOW_LOAD,      // other programs use the CPU; number: percent of all processors
    CN_SLOW_REASONS
};

struct cn_slow {
    enum cn_slow_reason reason;
    uint32_t number; // below 1024
};

// Returns the first reason of the enum, after CN_SLOW_UNKNOWN, that holds.
struct cn_slow cn_slow_reason_judge(const struct cn_reading *reading);

// Packs a reason into a float32 without loss, and unpacks it. Unpacking any other number gives
// CN_SLOW_UNKNOWN.
float cn_slow_reason_pack(struct cn_slow slow);
struct cn_slow cn_slow_reason_unpack(float packed);

// Writes the reason as text: "throttled at 85 C", "other programs use 60 % of its processors", ...
void cn_slow_reason_text(struct cn_slow slow, char *text, size_t size);
