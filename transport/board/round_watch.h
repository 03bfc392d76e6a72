// round_watch.h - keeps a board's view of the round: observes it (RFC 7641) and also polls it.
//
// Polling slows down while nothing changes. Through it a board also notices that the aggregator was
// restarted and has forgotten the session. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "transport/transfer/request.h"

struct cn_round_watch {
    bool on;
    bool forced; // report the next round even if it is the same
    bool has_round;
    bool has_sequence;
    uint32_t sequence; // sequence number of the last notification in this session
    uint64_t due_us;   // time of the next poll
    struct cn_request asking;
    struct cn_backoff pause;
    struct cn_round_info round;
    uint64_t deadline_ms; // of the round, as it was last told, by this board's clock
};

// Initialises the watch. kind is the first byte of the requests' tags. exchange and rtt are
// borrowed.
void cn_round_watch_init(struct cn_round_watch *watch, struct cn_exchange *exchange,
                         struct cn_rtt *rtt, uint8_t kind, uint64_t seed);

// Starts to watch, and reports the current round first; or stops.
void cn_round_watch_set(struct cn_round_watch *watch, bool on);

// Polls and reports the round again. Call it after a registration.
void cn_round_watch_renew(struct cn_round_watch *watch, uint64_t now_us);

// Call this in a new session: the observation is lost, and notifications count from the start.
void cn_round_watch_reconnected(struct cn_round_watch *watch, uint64_t now_us);

// What an answer or a notification says of the round.
enum cn_round_change {
    CN_ROUND_SAME,
    CN_ROUND_MOVED,   // the same round, but it has more or less time left
    CN_ROUND_CHANGED, // it differs from the reported one, or is the first one after set or renew
};

// Takes an answer or a notification. watch->round is the newest one then. Returns false to end the
// observation (struct cn_exchange's sink).
bool cn_round_watch_reply(struct cn_round_watch *watch, const struct cn_exchange_reply *reply,
                          uint64_t now_us, enum cn_round_change *change);

// Sends what is due. Lowers *wake_us to the time of the next request.
void cn_round_watch_step(struct cn_round_watch *watch, uint64_t now_us, uint64_t *wake_us);
