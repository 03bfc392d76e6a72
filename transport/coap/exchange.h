// exchange.h - requests and responses between a board and the aggregator, over any transport.
//
// An exchange sends a request once and hands every response to its sink. It repeats nothing;
// request.h, upload.h and download.h do that, each in its own way. Each request has a tag that its
// response carries back, so the exchange stores nothing for a request under way.
//
// An exchange connects to the aggregator by itself and reconnects after a loss: it tries all
// addresses in turn, with back-off and jitter. Threading: one thread. Nothing blocks.
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
    bool silent;  // the aggregator answers only with an error
    bool observe; // with GET: notifications follow under the same tag
    bool probe;   // may be too large for the path, so that silence does not end the session
};

struct cn_exchange_reply {
    uint64_t tag;
    unsigned code; // enum cn_coap_code, or any other that a peer sends
    const uint8_t *body;
    size_t size;
    uint32_t max_age_s; // 0: the reply has no Max-Age
    bool observed;      // sequence is set (RFC 7641, 3.4)
    uint32_t sequence;
};

// Takes a reply. Returns false for a reply that nobody waits for, which ends its observation.
typedef bool cn_exchange_sink(void *context, const struct cn_exchange_reply *reply);

// Reports that the request with this tag arrived, but that its answer was held back. The
// aggregator sends no long answer to a new address of this board until the board has proven that
// address. The next request does so (RFC 9175, 2.3): send this one again at once.
typedef void cn_exchange_again(void *context, uint64_t tag);

enum cn_exchange_state {
    CN_EXCHANGE_CONNECTING, // at the start and after the loss of a session, for the first attempts
    CN_EXCHANGE_UP,
    CN_EXCHANGE_DOWN,    // no address answers
    CN_EXCHANGE_REFUSED, // an aggregator answers and refuses this board's key
};

struct cn_exchange_stats {
    struct cn_link_bytes up, down;
};

struct cn_exchange;

struct cn_exchange_ops {
    void (*close)(struct cn_exchange *exchange);

    // Sends the request once. Returns CN_EAGAIN while there is no connection. CN_OK does not mean
    // that the request arrived.
    cn_err (*send)(struct cn_exchange *exchange, const struct cn_exchange_request *request);

    // Handles traffic and due timers, and calls the sink. Returns the time of the next timer in
    // microseconds of cn_platform_now_us, UINT64_MAX for none; call step again by then.
    uint64_t (*step)(struct cn_exchange *exchange);

    // Continues in a new session over a stream, or over datagrams. Returns CN_ENOTSUP when the
    // configuration leaves no choice.
    cn_err (*use_stream)(struct cn_exchange *exchange, bool stream);
};

// An implementation embeds this struct as its first member. The user sets sink, again and context
// before the first step. The implementation keeps the other fields up to date; the user reads them.
struct cn_exchange {
    const struct cn_exchange_ops *ops;
    cn_exchange_sink *sink;
    cn_exchange_again *again; // NULL: a held-back answer counts as lost
    void *context;

    int descriptor; // readable when step has work
    enum cn_exchange_state state;
    char text[160];    // explains DOWN and REFUSED to people
    uint32_t sessions; // number of sessions made so far; a new session has no observations
    bool stream;       // over TCP: requests arrive once and in order, or the session ends
    // Largest body of a message in bytes, in either direction. Over datagrams the path may take
    // less.
    uint32_t body_max;
    bool searches_mtu; // the size that the path takes is unknown: probe it with POST p
    struct cn_exchange_stats stats;
};
