// http_request.h - decides what becomes of a request, from its head alone. Pure functions.
//
// Nothing changes state over HTTP: only GET and HEAD are answered, without a body. A path is
// compared with a table; nothing is decoded, and no path leads to a file.
//
// Browsers run scripts of strangers. Such a script may make this machine's browser ask a server on
// loopback, under a name of its own that suddenly means 127.0.0.1 (DNS rebinding). So the Host that
// a request names must be one of this server's, and an Origin, where a browser sends one, must be
// the same as the Host. A script may also ask without reading the answer, only to keep this machine
// busy. So a request that a browser marks as another site's (Sec-Fetch-Site) gets only fixed
// answers, which cost next to nothing.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/name.h"

#define CN_HTTP_ROUTES_MAX 24  // routes of a server
#define CN_HTTP_HEAD_MAX 8192  // bytes of a request's head
#define CN_HTTP_TARGET_MAX 256 // bytes of path and query, with the terminating 0

struct cn_http_request {
    char name[CN_NAME_SIZE]; // what follows the path of a route with a name; "": nothing
    uint64_t number;         // value of the route's parameter; 0 when it was not sent
};

struct cn_http_answer {
    unsigned status;       // the server sets 200 before it calls the producer
    struct cn_buffer body; // owned by the server
};

// Produces the answer to a request. The error CN_ENOTFOUND is sent as 404, any other one as 503
// with the error's text.
typedef cn_err cn_http_produce(void *context, const struct cn_http_request *request,
                               struct cn_http_answer *answer);

struct cn_http_route {
    const char *path;      // "/metrics"; compared exactly
    bool named;            // path is followed by "/" and a name, as in "/v1/board/NAME"
    const char *parameter; // name of the one query parameter, a number; NULL: no query
    const char *type;      // Content-Type of a success
    bool open;             // answered even without a token
    uint32_t fresh_ms;     // milliseconds in which an answer is given again; 0: never
    const void *fixed;     // the answer, which never changes; NULL: produce makes it
    size_t fixed_size;     // bytes of fixed
    cn_http_produce *produce;
};

// What a server accepts. Set it with cn_http_rules_set.
struct cn_http_rules {
    char host[128];  // the host that the server listens at; "": a socket file, or any address
    char port[8];    // "": a socket file, which may be forwarded to any port
    char names[128]; // more hosts, separated by blanks; with ":PORT" only that port
    bool has_token;
    uint8_t token[CN_DIGEST_SIZE]; // SHA-256 of the token
};

// listen is "host:port" or "unix:PATH". names may be "". token: digest of the token, or NULL.
void cn_http_rules_set(struct cn_http_rules *rules, const char *listen, const char *names,
                       const uint8_t token[CN_DIGEST_SIZE]);

// The head of a request. A header that is missing is NULL.
struct cn_http_head {
    const char *method, *target, *host, *origin, *authorization;
    const char *site; // Sec-Fetch-Site
    bool repeated;    // host, origin, authorization or site came more than once
    bool has_body;    // Content-Length or Transfer-Encoding is there, also with 0
    size_t size;      // bytes
};

// Returns the route of a request and fills in request, or returns NULL with the status of the
// refusal and a sentence for the client.
const struct cn_http_route *cn_http_judge(const struct cn_http_rules *rules,
                                          const struct cn_http_route *routes, size_t count,
                                          const struct cn_http_head *head,
                                          struct cn_http_request *request, unsigned *status,
                                          const char **why);

// Returns true when the server wants no token, or this Authorization has it.
bool cn_http_is_trusted(const struct cn_http_rules *rules, const char *authorization);
