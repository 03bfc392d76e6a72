// round_watch.h - what a board sees of the round: observed (RFC 7641), and asked for besides.
//
// The longer nothing changes, the rarer it asks. That is also how a board notices that the
// aggregator was started anew and has forgotten the session. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "transport/transfer/request.h"

struct cn_round_watch {
    bool on;
    bool forced; // tell the next one even when it is the same
    bool has_round;
    bool has_sequence;
    uint32_t sequence; // of the last notification in this session
    uint64_t due_us;   // when to ask
    struct cn_request asking;
    struct cn_backoff pause;
    struct cn_round_info round;
};

// kind: first byte of the requests' tags. exchange and rtt are borrowed.
void cn_round_watch_init(struct cn_round_watch *watch, struct cn_exchange *exchange,
                         struct cn_rtt *rtt, uint8_t kind, uint64_t seed);

// Begins with the round as it is, or ends.
void cn_round_watch_set(struct cn_round_watch *watch, bool on);

// After a registration: the round is asked for and told again.
void cn_round_watch_renew(struct cn_round_watch *watch, uint64_t now_us);

// In a new session the observation is lost and notifications count anew.
void cn_round_watch_reconnected(struct cn_round_watch *watch, uint64_t now_us);

// Takes an answer or a notification; changed: watch->round is another than was told. False ends
// the observation (struct cn_exchange's sink).
bool cn_round_watch_reply(struct cn_round_watch *watch, const struct cn_exchange_reply *reply,
                          uint64_t now_us, bool *changed);

// Sends what is due; lowers *wake_us to the next time that something is.
void cn_round_watch_step(struct cn_round_watch *watch, uint64_t now_us, uint64_t *wake_us);
