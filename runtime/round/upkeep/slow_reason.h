// slow_reason.h - why a board may compute slower than it could, as its sensors see it.
//
// Members tell it with each step's vote, so that any of them can say who is slow and why. Nothing
// is decided by it. Threading: none; pure.
#pragma once

#include <stddef.h>

#include "runtime/port/sensors.h"

enum cn_slow_reason {
    CN_SLOW_UNKNOWN,   // no sensor explains it
    CN_SLOW_THROTTLED, // by the system, for heat or power; number: degrees Celsius, 0: not known
    CN_SLOW_CLOCK,     // its power mode or governor; number: percent of the full clock
    CN_SLOW_BATTERY,   // number: percent that are left
    CN_SLOW_LOAD,      // of other programs; number: percent of the processors
    CN_SLOW_REASONS
};

struct cn_slow {
    enum cn_slow_reason reason;
    uint32_t number; // below 1024
};

// The first of these that holds.
struct cn_slow cn_slow_reason_judge(const struct cn_reading *reading);

// As one number that a float32 holds exactly, and back. Of a number that is none: unknown.
float cn_slow_reason_pack(struct cn_slow slow);
struct cn_slow cn_slow_reason_unpack(float packed);

// "throttled at 85 C", "other programs use 60 % of its processors", ...
void cn_slow_reason_text(struct cn_slow slow, char *text, size_t size);
