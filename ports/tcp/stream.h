// stream.h - moves the bytes of one collective call between this board and some of its peers.
//
// A stream is a pair with two flows, one in and one out. A flow is a list of spans of memory.
// Outgoing spans are sent; what arrives is copied or reduced into incoming spans. An exchange runs
// all its streams at the same time, to their ends. Nothing is allocated. Threading: one thread.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "ports/tcp/pair.h"

#define CN_SPANS (2 * CN_GROUP_MAX) // spans of a flow; a ring's all-reduce needs 2 * (size - 1)

// What is done with bytes that arrive for a span.
enum cn_arrival {
    CN_ARRIVAL_COPY,
    CN_ARRIVAL_REDUCE,
    CN_ARRIVAL_FINISH, // reduce for the last time: divides if the call averages
    CN_ARRIVAL_MATCH,  // copy, then compare with the exchange's expected bytes
};

struct cn_span {
    uint8_t *data;
    size_t size;
    enum cn_arrival arrival; // used when receiving; sending ignores it
};

struct cn_flow {
    struct cn_span spans[CN_SPANS];
    uint32_t count;
    uint32_t at;        // index of the span in progress
    size_t offset;      // bytes of that span that are done
    size_t done, total; // bytes of all spans
};

struct cn_stream {
    struct cn_pair *pair;
    uint32_t member; // index in the member list
    struct cn_flow in, out;
    // The flow that out follows; NULL: out is sent at once. The first `credit` bytes of out may be
    // sent at once, and one more byte for each byte that `after` has received.
    const struct cn_flow *after;
    size_t credit;
};

#define CN_STREAM_EXCHANGE_SCRATCH 16384 // bytes; a TLS record carries at most as many

struct cn_stream_exchange {
    struct cn_stream streams[CN_GROUP_MAX];
    uint32_t count;
    enum cn_number type;           // type of the reduced elements; at most one stream reduces
    enum cn_reduce how;            // how elements are reduced
    uint32_t members;              // number of members, the divisor of an average
    const struct cn_member *names; // the member list, for the log; borrowed
    const char *doing;             // the call in words, for the log; borrowed
    uint32_t timeout_ms;           // limit of the time without a byte
    int stop_fds[2]; // [0]: readable once canceled; [1]: cancels when readable; -1: none
    const atomic_bool *canceled; // set by cancel; borrowed
    const uint8_t *expected;     // what CN_ARRIVAL_MATCH compares with; borrowed
    uint32_t lost;  // result: index in the member list of the failed member, or UINT32_MAX
    size_t partial; // bytes in scratch that belong to an incomplete element
    _Alignas(16) uint8_t scratch[CN_STREAM_EXCHANGE_SCRATCH];
};

// Appends a span to a flow. data is borrowed until the exchange ends.
void cn_flow_add(struct cn_flow *flow, void *data, size_t size, enum cn_arrival arrival);

// Returns the stream of a pair in this exchange; adds it if it is not there yet.
struct cn_stream *cn_stream_exchange_stream(struct cn_stream_exchange *exchange,
                                            struct cn_pair *pair, uint32_t member);

// Runs until all flows have ended. Blocks, at most timeout_ms without a byte; logs the member that
// is waited for after a second. CN_EPEER, CN_ETIMEOUT, CN_ECONFLICT and CN_ENOMEM set lost;
// CN_ECANCELED and CN_EIO do not, and neither does the CN_ETIMEOUT after 3 s on a path that loses
// large packets.
cn_err cn_stream_exchange_run(struct cn_stream_exchange *exchange);
