// pause_rules.h - decides whether the board may train now.
//
// The inputs are rules from the profile, the readings of sensors and the time of day. A pause has
// one reason, the first that holds: an update of the system, then the others in the order of enum
// cn_pause. Each rule has two limits or a delay, because training itself makes heat and uses power
// and would otherwise switch on and off. These rules do not protect the board: its firmware and
// kernel do. A day of wear is 24 h over which disk writes are counted. Threading: none; pure.
#pragma once

#include "runtime/port/sensors.h"

enum cn_pause {
    CN_PAUSE_NONE,
    CN_PAUSE_HEAT,
    CN_PAUSE_POWER,
    CN_PAUSE_WINDOW,  // outside the hours for training, or the clock is not set
    CN_PAUSE_BUSY,    // other programs need the CPU
    CN_PAUSE_WEAR,    // the day's disk writes are used up
    CN_PAUSE_BYTES,   // the day's network bytes are used up
    CN_PAUSE_METERED, // the link is metered at this hour
    CN_PAUSE_UPDATE,  // the system is updated between two rounds
};

#define CN_PAUSE_NO_CLOCK UINT64_MAX // the time of day is not known

struct cn_pause_rules {
    uint64_t pause_above_mc, resume_below_mc; // 0: no limit
    uint64_t budget_mw;                       // power budget that pauses training; 0: none
    uint64_t window_from_ms, window_to_ms;    // training hours, ms after midnight; equal: always
    double others_max;                        // largest CPU share of other programs; 0: no limit
    uint64_t wear_bytes;                      // most bytes written in a day; 0: no limit
};

struct cn_pause_state {
    enum cn_pause pause;
    enum cn_pause link; // set by the caller: the reason that traffic.h gives, considered last
    bool held;          // set by the caller: the system is updated; considered first
    uint64_t pause_ms;  // time at which the pause began
    bool hot;
    // Times of the last reading and of the last change of the temperature.
    uint64_t seen_ms, changed_ms;
    int32_t temperature_mc;
    // The temperature is above the limit but its sensor vanished or is stuck, so it is ignored.
    bool doubted;
    // Time since when the value is above its limit; 0: it is below.
    uint64_t power_over_ms, busy_over_ms;
    uint64_t power_until_ms, busy_until_ms;
    // Time at which this day of wear began, and the bytes written by then.
    uint64_t day_ms, day_written;
    bool has_day;
};

// Returns the pause that holds from now on and stores it in care. day_ms is the time since local
// midnight.
enum cn_pause cn_pause_decide(struct cn_pause_state *care, const struct cn_pause_rules *rules,
                              const struct cn_reading *reading, uint64_t now_ms, uint64_t day_ms);

// Continues a day of wear that began elapsed_ms before now and has seen `bytes` written bytes.
// reading is the first of this process.
void cn_pause_resume_day(struct cn_pause_state *care, const struct cn_reading *reading,
                         uint64_t now_ms, uint64_t elapsed_ms, uint64_t bytes);

// Returns the bytes written in this day of wear so far.
uint64_t cn_pause_worn(const struct cn_pause_state *care, const struct cn_reading *reading);

// Returns the reason as a word: "heat", "window"; "" for CN_PAUSE_NONE.
const char *cn_pause_word(enum cn_pause pause);

// Returns the reason as text: "too hot", "outside the hours for training", ...; "" for
// CN_PAUSE_NONE.
const char *cn_pause_text(enum cn_pause pause);
