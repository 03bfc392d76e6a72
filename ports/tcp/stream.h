// stream.h - moves the bytes of one collective call between this board and some of its peers.
//
// A stream is a pair with two flows, one in and one out; a flow is a row of spans, bytes in memory
// that are sent, or that what arrives is copied or reduced into. An exchange runs its streams to
// their ends, all at once.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "ports/tcp/pair.h"

#define CN_SPANS (2 * CN_GROUP_MAX) // an all-reduce over a ring has 2 * (size - 1) chunks

enum cn_arrival {
    CN_ARRIVAL_COPY,
    CN_ARRIVAL_REDUCE,
    CN_ARRIVAL_FINISH, // reduce for the last time: an average is divided
    CN_ARRIVAL_MATCH,  // copy; it must be what the exchange expects
};

struct cn_span {
    uint8_t *data;
    size_t size;
    enum cn_arrival arrival; // what receiving does; sending ignores it
};

struct cn_flow {
    struct cn_span spans[CN_SPANS];
    uint32_t count;
    uint32_t at;   // span in progress
    size_t offset; // in it
    size_t done, total;
};

struct cn_stream {
    struct cn_pair *pair;
    uint32_t member; // index in the member list
    struct cn_flow in, out;
    // The first `credit` bytes of out may be sent at once, each further one when after has received
    // one more. NULL: all at once.
    const struct cn_flow *after;
    size_t credit;
};

#define CN_EXCHANGE_SCRATCH 16384 // bytes; a TLS record carries no more

struct cn_exchange {
    struct cn_stream streams[CN_GROUP_MAX];
    uint32_t count;
    enum cn_number type; // of what is reduced; at most one stream reduces
    enum cn_reduce how;
    uint32_t members; // that an average divides by
    const struct cn_member *names;
    const char *doing;   // for the log
    uint32_t timeout_ms; // without a byte
    int stop_fds[2];     // readable: give up; -1 for none
    const atomic_bool *canceled;
    const uint8_t *expected; // of spans that must match
    uint32_t lost;           // result: index in the member list, or UINT32_MAX
    size_t partial;          // bytes in scratch of an element that is not complete yet
    _Alignas(16) uint8_t scratch[CN_EXCHANGE_SCRATCH];
};

void cn_flow_add(struct cn_flow *flow, void *data, size_t size, enum cn_arrival arrival);

// The stream of a pair in this exchange, added when it is not there yet.
struct cn_stream *cn_exchange_stream(struct cn_exchange *exchange, struct cn_pair *pair,
                                     uint32_t member);

// Until all flows have ended. CN_EPEER, CN_ETIMEOUT and CN_ECONFLICT with lost, CN_ECANCELED. Logs
// who is waited for after a second.
cn_err cn_exchange_run(struct cn_exchange *exchange);
