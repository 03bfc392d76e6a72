// http_answers.h - makes libmicrohttpd's responses, and keeps those that are still fresh.
//
// Several pages and monitors poll the same few paths. So an answer is made once and given to all
// until it is fresh_ms old. A route with neither a name nor a parameter has one answer. A place is
// reserved for it, so it is made at most once in fresh_ms. The answers of the other routes share
// the remaining places and a limited time. Threading: that of the server.
#pragma once

#include <microhttpd.h>

#include "runtime/base/log_limit.h"
#include "transport/coap/bucket.h"
#include "transport/http/http_request.h"

#define CN_HTTP_KEPT (CN_HTTP_ROUTES_MAX + 12) // answers that are kept
#define CN_HTTP_ETAG_SIZE 19 // a quoted number of 16 digits, with the terminating 0

struct cn_http_kept {
    const struct cn_http_route *route; // borrowed; NULL: empty
    struct cn_http_request request;
    uint64_t made_ms; // clock
    unsigned status;
    char etag[CN_HTTP_ETAG_SIZE];
    struct MHD_Response *response; // owned
};

struct cn_http_answers { // zero it before use
    struct cn_http_kept kept[CN_HTTP_KEPT];
    struct cn_bucket made;       // limits the time for making answers
    struct cn_log_limit trouble; // limits lines about errors of producers
};

void cn_http_answers_deinit(struct cn_http_answers *answers);

// Returns true when the answer to this request need not be made.
bool cn_http_answers_has(struct cn_http_answers *answers, const struct cn_http_route *route,
                         const struct cn_http_request *request, uint64_t now_ms);

// Tells whether the answers of this route share the limited time.
bool cn_http_answers_share(const struct cn_http_route *route);

// Tells whether some of the time that answers share is left.
bool cn_http_answers_room(const struct cn_http_answers *answers, uint64_t now_ms);

// Finds or makes the answer to a request and queues it. known is the client's If-None-Match or
// NULL.
enum MHD_Result cn_http_answers_queue(struct cn_http_answers *answers,
                                      struct MHD_Connection *connection,
                                      const struct cn_http_route *route, void *context,
                                      const struct cn_http_request *request, const char *known,
                                      uint64_t now_ms);

// Queues a refusal, after which the connection is closed.
enum MHD_Result cn_http_answers_refuse(struct MHD_Connection *connection, unsigned status,
                                       const char *why);
