// traffic.h - what the profile lets a board send and receive: bytes a day, hours in which the link
// costs.
//
// Pure, but for load and save. A day is 24 h from its first byte on, by the clock since boot; the
// time a board was off counts only where the date was known before and after, so a board in 1970
// waits rather too long than too short. Without a date all hours cost. None of this has to repeat:
// the rule of a round is decided once by the leader and stored with the round. Threading: none.
#pragma once

#include "runtime/port/store.h"
#include "runtime/round/upkeep/pause_rules.h"

struct cn_traffic_rules {
    uint64_t day_bytes;                      // 0: no limit
    uint64_t metered_from_ms, metered_to_ms; // after midnight; equal: never
    uint64_t metered_bytes;                  // of an update in these hours; 0: no use of the link
};

struct cn_traffic {
    uint64_t used;       // bytes of this day
    uint64_t elapsed_ms; // of this day; it begins with its first byte
    uint64_t seen_ms, seen_bytes;
    uint64_t stored; // of used
    bool begun;
    bool counting; // seen_ms is of this process
};

// bytes: sent and received since the program started.
void cn_traffic_count(struct cn_traffic *traffic, uint64_t bytes, uint64_t now_ms);

// Whether the link may be used now. day_ms: since local midnight, or CN_PAUSE_NO_CLOCK.
enum cn_pause cn_traffic_decide(const struct cn_traffic *traffic,
                                const struct cn_traffic_rules *rules, uint64_t day_ms);

// Bytes an update may have: half of what is left of the day, since the next version comes down,
// too; less in hours that cost. 0 for no limit.
uint64_t cn_traffic_update_max(const struct cn_traffic *traffic,
                               const struct cn_traffic_rules *rules, uint64_t day_ms);

// Takes up the stored day. clock_s: the date in seconds since 1970, 0 where it is not known.
void cn_traffic_load(struct cn_store *store, uint64_t clock_s, struct cn_traffic *traffic);

// Stores the day, when a part of a hundredth of the limit was used since the last time, or now.
void cn_traffic_save(struct cn_store *store, const struct cn_traffic_rules *rules, uint64_t clock_s,
                     bool now, struct cn_traffic *traffic);
