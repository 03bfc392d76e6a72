#include "runtime/round/upkeep/slow_reason.h"

#include <stdio.h>

#define NUMBERS 1024u
// Share of all processors below which the load of other programs is not reported.
#define LOAD_LEAST 0.15
#define CLOCK_MOST 0.95 // share of the full clock above which the clock is not reported

static struct cn_slow slow_for(enum cn_slow_reason reason, double number)
{
    uint32_t whole = number > 0 ? (uint32_t)(number + 0.5) : 0;

    return (struct cn_slow){reason, whole < NUMBERS ? whole : NUMBERS - 1};
}

struct cn_slow cn_slow_reason_judge(const struct cn_reading *reading)
{
    if (reading->throttled)
        return slow_for(CN_SLOW_THROTTLED,
                        reading->has_temperature ? reading->temperature_mc / 1000.0 : 0);
    if (reading->has_clock && reading->clock < CLOCK_MOST)
        return slow_for(CN_SLOW_CLOCK, reading->clock * 100);
    if (reading->on_battery)
        return slow_for(CN_SLOW_BATTERY, reading->battery * 100);
    if (reading->has_others && reading->others > LOAD_LEAST)
        return slow_for(CN_SLOW_LOAD, reading->others * 100);
    return (struct cn_slow){CN_SLOW_UNKNOWN, 0};
}

float cn_slow_reason_pack(struct cn_slow slow)
{
    return (float)((uint32_t)slow.reason * NUMBERS + slow.number);
}

struct cn_slow cn_slow_reason_unpack(float packed)
{
    uint32_t whole = packed >= 0 && packed < CN_SLOW_REASONS * NUMBERS ? (uint32_t)packed : 0;

    return (struct cn_slow){(enum cn_slow_reason)(whole / NUMBERS), whole % NUMBERS};
}

void cn_slow_reason_text(struct cn_slow slow, char *text, size_t size)
{
    switch (slow.reason) {
    case CN_SLOW_THROTTLED:
        if (slow.number)
            snprintf(text, size, "throttled at %u C", slow.number);
        else
            snprintf(text, size, "throttled by its system");
        return;
    case CN_SLOW_CLOCK:
        snprintf(text, size, "held at %u %% of its clock by its power mode", slow.number);
        return;
    case CN_SLOW_BATTERY:
        snprintf(text, size, "on battery, %u %% left", slow.number);
        return;
    case CN_SLOW_LOAD:
        snprintf(text, size, "other programs use %u %% of its processors", slow.number);
        return;
    default:
        snprintf(text, size, "no sensor says why");
    }
}
