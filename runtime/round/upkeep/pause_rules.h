// pause_rules.h - whether the board may train now, as a pure decision.
//
// The inputs are rules from the profile, what the sensors read and the time of day. A pause has one
// reason, the first of the list that holds. Each rule has two limits or a delay, so that it does
// not flutter: training itself makes heat and power. Nothing here is for safety: the board's own
// firmware and kernel protect it. Threading: none; pure.
#pragma once

#include "runtime/port/sensors.h"

enum cn_pause {
    CN_PAUSE_NONE,
    CN_PAUSE_HEAT,
    CN_PAUSE_POWER,
    CN_PAUSE_WINDOW,  // outside the hours for training, or the clock is not set
    CN_PAUSE_BUSY,    // other programs need the processors
    CN_PAUSE_WEAR,    // enough was written for today
    CN_PAUSE_BYTES,   // enough was sent and received for today
    CN_PAUSE_METERED, // the link costs now
};

#define CN_PAUSE_NO_CLOCK UINT64_MAX // time of day that is not known

struct cn_pause_rules {
    uint64_t pause_above_mc, resume_below_mc; // 0: no limit
    uint64_t budget_mw;                       // 0: not held to it
    uint64_t window_from_ms, window_to_ms;    // after midnight; equal: always
    double others_max;                        // share of the processors; 0: no limit
    uint64_t wear_bytes;                      // a day; 0: no limit
};

struct cn_pause_state {
    enum cn_pause pause;
    enum cn_pause link; // set by the caller: of traffic.h, the last reason to pause
    uint64_t pause_ms;  // when it began
    bool hot;
    uint64_t seen_ms, changed_ms; // the temperature: last there, last another one
    int32_t temperature_mc;
    bool doubted; // the temperature is above the limit, but vanished or stuck: not believed
    uint64_t power_over_ms, busy_over_ms; // since when above the limit; 0: below
    uint64_t power_until_ms, busy_until_ms;
    uint64_t day_ms, day_written; // when this day of wear began, and the count then
    bool has_day;
};

// Returns the pause that holds from now on, which is also in care. day_ms: since local midnight.
enum cn_pause cn_pause_decide(struct cn_pause_state *care, const struct cn_pause_rules *rules,
                              const struct cn_reading *reading, uint64_t now_ms, uint64_t day_ms);

// The day of wear goes on that had begun elapsed_ms before now and saw so many bytes. reading is
// the first of this process.
void cn_pause_resume_day(struct cn_pause_state *care, const struct cn_reading *reading,
                         uint64_t now_ms, uint64_t elapsed_ms, uint64_t bytes);

// Bytes written in this day of wear so far.
uint64_t cn_pause_worn(const struct cn_pause_state *care, const struct cn_reading *reading);

// "too hot", "outside the hours for training", ...; "" for none.
const char *cn_pause_text(enum cn_pause pause);
