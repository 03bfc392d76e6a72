// traffic.h - limits of the profile on the link: bytes per day, and hours in which the link is
// metered.
//
// A day lasts 24 h from its first byte, by the clock since boot. Time that the board was off counts
// only if the date was known before and after. Otherwise the board waits too long rather than too
// short. Without a date all hours count as metered. These decisions need not be repeatable: the
// leader decides the rule of a round once and stores it with the round. Threading: none; pure,
// except for load and save.
#pragma once

#include "runtime/port/store.h"
#include "runtime/round/upkeep/pause_rules.h"

struct cn_traffic_rules {
    uint64_t day_bytes;                      // 0: no limit
    uint64_t metered_from_ms, metered_to_ms; // after midnight; equal: never
    uint64_t metered_bytes; // largest update in these hours; 0: the link is not used then
};

struct cn_traffic {
    uint64_t used;       // bytes sent and received in this day
    uint64_t elapsed_ms; // duration of this day so far
    uint64_t seen_ms, seen_bytes;
    uint64_t stored; // value of used in the file
    bool begun;
    bool counting; // this process has set seen_ms
};

// Counts traffic. bytes is the number of bytes sent and received since the program started.
void cn_traffic_count(struct cn_traffic *traffic, uint64_t bytes, uint64_t now_ms);

// Returns CN_PAUSE_NONE when the link may be used now, else the reason. day_ms is the time since
// local midnight, or CN_PAUSE_NO_CLOCK.
enum cn_pause cn_traffic_decide(const struct cn_traffic *traffic,
                                const struct cn_traffic_rules *rules, uint64_t day_ms);

// Returns whether reports for people are to be left out: the link is metered now, or nine tenths of
// the day's bytes are used.
bool cn_traffic_is_scarce(const struct cn_traffic *traffic, const struct cn_traffic_rules *rules,
                          uint64_t day_ms);

// Returns the largest size of an update; 0: no limit. It is half of what is left of the day,
// because the next version comes down too, and less in metered hours.
uint64_t cn_traffic_update_max(const struct cn_traffic *traffic,
                               const struct cn_traffic_rules *rules, uint64_t day_ms);

// Loads the stored day. clock_s is the date in seconds since 1970; 0: not known.
void cn_traffic_load(struct cn_store *store, uint64_t clock_s, struct cn_traffic *traffic);

// Stores the day if a hundredth of its limit was used since the last time, or at once if `now`.
// Logs an error.
void cn_traffic_save(struct cn_store *store, const struct cn_traffic_rules *rules, uint64_t clock_s,
                     bool now, struct cn_traffic *traffic);
