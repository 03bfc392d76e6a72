// exchange.h - requests and responses between a board and the aggregator, over any transport.
//
// An exchange sends a request once and hands every response that comes to its sink. It repeats
// nothing: call.h, upload.h and download.h do, each in its own way. A request is named by a tag
// that its response carries back, so nothing is stored here for a request under way.
//
// It keeps a connection to the aggregator by itself: all addresses in turn, with back-off and
// jitter. Threading: one thread. Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/port/link.h"
#include "transport/coap/coap.h"

struct cn_exchange_request {
    uint64_t tag;
    enum cn_coap_method method;
    const char *path;    // "u/0011223344556677/12"
    const uint8_t *body; // at most body_max bytes
    size_t size;
    bool silent;  // no answer wanted, unless it is an error
    bool observe; // with GET: notifications follow under the same tag
    bool probe;   // may be too large for the path: no answer does not mean that nobody is there
};

struct cn_exchange_reply {
    uint64_t tag;
    unsigned code; // enum cn_coap_code, or any other that a peer sends
    const uint8_t *body;
    size_t size;
    uint32_t max_age_s; // 0: not said
    bool observed;      // sequence is set (RFC 7641, 3.4)
    uint32_t sequence;
};

// Returns false for a reply that nobody waits for; that ends an observation.
typedef bool cn_exchange_sink(void *context, const struct cn_exchange_reply *reply);

// The request with this tag arrived, but its answer did not come along: it goes to a new address of
// this board only once that has shown that it is its own, as the next request does. To be sent
// again at once.
typedef void cn_exchange_again(void *context, uint64_t tag);

enum cn_exchange_state {
    CN_EXCHANGE_CONNECTING, // at start and for a short while after a loss
    CN_EXCHANGE_UP,
    CN_EXCHANGE_DOWN,    // nobody answers at any address
    CN_EXCHANGE_REFUSED, // somebody answers and refuses this board's key
};

struct cn_exchange_stats {
    struct cn_link_bytes up, down;
};

struct cn_exchange;

struct cn_exchange_ops {
    void (*close)(struct cn_exchange *exchange);

    // CN_EAGAIN while there is no connection. CN_OK does not mean that it arrived.
    cn_err (*send)(struct cn_exchange *exchange, const struct cn_exchange_request *request);

    // Does what is due and calls the sink. Returns when it wants to be called again at the latest,
    // in microseconds of cn_platform_now_us.
    uint64_t (*step)(struct cn_exchange *exchange);

    // Goes on in a new session over a stream, or over datagrams. CN_ENOTSUP when there is no
    // choice.
    cn_err (*use_stream)(struct cn_exchange *exchange, bool stream);
};

// An implementation embeds it as its first member. The user sets the sink before the first step,
// and reads the rest, which the implementation keeps up to date.
struct cn_exchange {
    const struct cn_exchange_ops *ops;
    cn_exchange_sink *sink;
    cn_exchange_again *again; // NULL: as if the request were lost
    void *context;

    int descriptor; // readable when step has work
    enum cn_exchange_state state;
    char text[160];    // explains DOWN and REFUSED
    uint32_t sessions; // made so far: another number means that observations are lost
    // TCP: what is sent arrives, in order and once, or the session ends.
    bool stream;
    // Bytes of a body in a message, either way, at most. Over datagrams the path may take less.
    uint32_t body_max;
    bool searches_mtu; // POST p is answered, and so tells what the path takes
    struct cn_exchange_stats stats;
};
