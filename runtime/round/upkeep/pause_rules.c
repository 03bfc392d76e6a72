#include "runtime/round/upkeep/pause_rules.h"

#define OVER_MS 10000      // a value must stay above its limit this long before it counts
#define REST_MS 60000      // shortest pause for power or load
#define VANISHED_MS 600000 // a temperature that is missing this long no longer pauses
#define STUCK_MS 1800000 // a temperature that does not change at all for this long no longer pauses
#define DAY_MS UINT64_C(86400000) // 24 h

// Returns whether the board is hot: from the upper limit on until it falls to the lower one.
static bool is_hot(struct cn_pause_state *care, const struct cn_pause_rules *rules,
                   const struct cn_reading *reading, uint64_t now_ms)
{
    if (!rules->pause_above_mc)
        return false;
    if (reading->has_temperature) {
        if (care->seen_ms == 0 || reading->temperature_mc != care->temperature_mc)
            care->changed_ms = now_ms;
        care->temperature_mc = reading->temperature_mc;
        care->seen_ms = now_ms;
    }
    bool believed = care->seen_ms && now_ms - care->seen_ms < VANISHED_MS &&
                    now_ms - care->changed_ms < STUCK_MS;

    if (reading->has_temperature && care->temperature_mc >= (int64_t)rules->pause_above_mc)
        care->hot = true;
    care->doubted = care->hot && !believed;
    if (!believed ||
        (reading->has_temperature && care->temperature_mc <= (int64_t)rules->resume_below_mc))
        care->hot = false;
    return care->hot;
}

// Returns whether a pause is needed: after OVER_MS above the limit, until REST_MS after the value
// fell below.
static bool needs_rest(bool over, uint64_t now_ms, uint64_t *over_ms, uint64_t *until_ms)
{
    if (!over)
        *over_ms = 0;
    else if (*over_ms == 0)
        *over_ms = now_ms;
    if (over && now_ms - *over_ms >= OVER_MS)
        *until_ms = now_ms + REST_MS;
    return now_ms < *until_ms;
}

static bool is_outside(const struct cn_pause_rules *rules, uint64_t day_ms)
{
    uint64_t from = rules->window_from_ms, to = rules->window_to_ms;

    if (from == to)
        return false;
    if (day_ms == CN_PAUSE_NO_CLOCK)
        return true;
    return from < to ? day_ms < from || day_ms >= to : day_ms < from && day_ms >= to;
}

static bool is_worn(struct cn_pause_state *care, const struct cn_pause_rules *rules,
                    const struct cn_reading *reading, uint64_t now_ms)
{
    if (!rules->wear_bytes || !reading->has_written)
        return false;
    if (!care->has_day || now_ms - care->day_ms >= DAY_MS) {
        care->has_day = true;
        care->day_ms = now_ms;
        care->day_written = reading->written;
    }
    return cn_pause_worn(care, reading) > rules->wear_bytes;
}

// Differences of counters are correct modulo 2^64, even where the day began before this process
// did.
void cn_pause_resume_day(struct cn_pause_state *care, const struct cn_reading *reading,
                         uint64_t now_ms, uint64_t elapsed_ms, uint64_t bytes)
{
    care->has_day = true;
    care->day_ms = now_ms - elapsed_ms;
    care->day_written = reading->written - bytes;
}

uint64_t cn_pause_worn(const struct cn_pause_state *care, const struct cn_reading *reading)
{
    return care->has_day && reading->has_written ? reading->written - care->day_written : 0;
}

enum cn_pause cn_pause_decide(struct cn_pause_state *care, const struct cn_pause_rules *rules,
                              const struct cn_reading *reading, uint64_t now_ms, uint64_t day_ms)
{
    bool over_power =
        rules->budget_mw && reading->has_power && reading->power_mw > rules->budget_mw;
    bool over_load =
        rules->others_max > 0 && reading->has_others && reading->others > rules->others_max;
    // Every rule sees every reading, whichever gives the reason.
    bool hot = is_hot(care, rules, reading, now_ms);
    bool power = needs_rest(over_power, now_ms, &care->power_over_ms, &care->power_until_ms);
    bool busy = needs_rest(over_load, now_ms, &care->busy_over_ms, &care->busy_until_ms);
    bool worn = is_worn(care, rules, reading, now_ms);
    enum cn_pause pause = care->held                  ? CN_PAUSE_UPDATE
                          : hot                       ? CN_PAUSE_HEAT
                          : power                     ? CN_PAUSE_POWER
                          : is_outside(rules, day_ms) ? CN_PAUSE_WINDOW
                          : busy                      ? CN_PAUSE_BUSY
                          : worn                      ? CN_PAUSE_WEAR
                                                      : care->link;

    if (pause != care->pause)
        care->pause_ms = now_ms;
    care->pause = pause;
    return pause;
}

const char *cn_pause_text(enum cn_pause pause)
{
    static const char *const texts[] = {
        [CN_PAUSE_NONE] = "",
        [CN_PAUSE_HEAT] = "too hot",
        [CN_PAUSE_POWER] = "above the power budget",
        [CN_PAUSE_WINDOW] = "outside the hours for training",
        [CN_PAUSE_BUSY] = "other programs need the processors",
        [CN_PAUSE_WEAR] = "enough was written to the disk for today",
        [CN_PAUSE_BYTES] = "enough was sent and received for today",
        [CN_PAUSE_METERED] = "the link costs at this time",
        [CN_PAUSE_UPDATE] = "the system is updated",
    };

    return texts[pause];
}

const char *cn_pause_word(enum cn_pause pause)
{
    static const char *const words[] = {
        [CN_PAUSE_NONE] = "",         [CN_PAUSE_HEAT] = "heat",       [CN_PAUSE_POWER] = "power",
        [CN_PAUSE_WINDOW] = "window", [CN_PAUSE_BUSY] = "busy",       [CN_PAUSE_WEAR] = "wear",
        [CN_PAUSE_BYTES] = "bytes",   [CN_PAUSE_METERED] = "metered", [CN_PAUSE_UPDATE] = "update",
    };

    return words[pause];
}
