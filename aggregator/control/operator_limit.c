#include "aggregator/control/operator_limit.h"

#define MINUTE_MS 60000
#define HOUR_MS 3600000

#define PROCESS (1ull << 32) // added to the number of a process

// Returns the place of a process that was used longest ago; NULL: there is none.
static struct cn_operator_count *oldest_process(struct cn_operator_limit *limit)
{
    struct cn_operator_count *oldest = NULL;
    for (size_t i = 0; i < limit->count; i++) {
        struct cn_operator_count *count = &limit->counts[i];
        if (count->who >= PROCESS && (!oldest || count->last_ms < oldest->last_ms))
            oldest = count;
    }
    return oldest;
}

// Returns the place of a user or process: its own, a new one, one that was not used for an hour,
// that of another process, or the last one.
static struct cn_operator_count *find(struct cn_operator_limit *limit, uint64_t who,
                                      uint64_t now_ms)
{
    struct cn_operator_count *place = NULL;
    for (size_t i = 0; i < limit->count; i++) {
        struct cn_operator_count *count = &limit->counts[i];
        if (count->who == who)
            return count;
        if (now_ms - count->hour_ms >= HOUR_MS)
            place = count;
    }
    if (limit->count < CN_OPERATOR_USERS)
        place = &limit->counts[limit->count++];
    if (!place)
        place = oldest_process(limit);
    if (!place)
        return &limit->counts[CN_OPERATOR_USERS - 1];
    *place = (struct cn_operator_count){.who = who, .minute_ms = now_ms, .hour_ms = now_ms};
    return place;
}

static uint32_t seconds_until(uint64_t begun_ms, uint64_t period_ms, uint64_t now_ms)
{
    return (uint32_t)((begun_ms + period_ms - now_ms + 999) / 1000);
}

uint32_t cn_operator_limit_take(struct cn_operator_limit *limit, uint32_t uid, int32_t pid,
                                uint64_t now_ms)
{
    bool hidden = uid == CN_OPERATOR_HIDDEN;
    struct cn_operator_count *count = find(limit, hidden ? PROCESS + (uint32_t)pid : uid, now_ms);
    count->last_ms = now_ms;
    if (now_ms - count->hour_ms >= HOUR_MS) {
        count->hour_ms = now_ms;
        count->hour = 0;
    }
    if (now_ms - count->minute_ms >= MINUTE_MS) {
        count->minute_ms = now_ms;
        count->minute = 0;
    }
    if (count->hour >= CN_OPERATOR_HOUR)
        return seconds_until(count->hour_ms, HOUR_MS, now_ms);
    if (count->minute >= CN_OPERATOR_MINUTE)
        return seconds_until(count->minute_ms, MINUTE_MS, now_ms);
    count->minute++;
    count->hour++;
    return 0;
}
