// http_server.h - a small HTTP/1.1 server for people and monitors, in the caller's loop.
//
// It answers GET and HEAD from a table of routes (http_request.h) and has no thread, no TLS and no
// files. The library is libmicrohttpd; only http_server.c and http_answers.h include it.
//
// Limits keep the cost of clients small:
//
// - 32 connections; 8 for one address, unless the server is local;
// - 8 KiB for a request's head, and 5 s to send the first one;
// - 60 s from an answer to the end of the next head; 5 s without the token, where one is wanted.
//
// When all connections are taken, the one that has been idle the longest is closed. A connection
// whose request was refused is always closed. A step makes one answer. The answers of routes with a
// name or a parameter take at most a tenth of the time and are at most 50 a second. Requests for
// these wait in the order in which they came, one for each connection, so that no client keeps
// another one out; after 5 s without time for them they are refused. Fresh and fixed answers cost
// next to nothing. Threading: one thread.
#pragma once

#include "transport/http/http_request.h"

#define CN_HTTP_CONNECTIONS 32
#define CN_HTTP_PER_ADDRESS 8 // connections of one client's address
#define CN_HTTP_HEAD_MS 5000  // from the connection to the end of its first head
#define CN_HTTP_TURN_MS 5000  // from a request to the refusal when its turn does not come
#define CN_HTTP_IDLE_MS 60000 // from an answer to the end of the next head

struct cn_http_config {
    const char *listen;                 // "host:port" or "unix:PATH"; NULL: no socket, for tests
    bool local;                         // only programs of this machine reach listen
    struct cn_http_rules rules;         // copied
    const struct cn_http_route *routes; // borrowed until close, as context is
    size_t route_count;                 // at most CN_HTTP_ROUTES_MAX
    void *context;
};

struct cn_http_server;

// Opens the server and listens. Returns the errors of cn_http_listen, CN_ERANGE also when there are
// too many routes, and CN_ENOMEM.
cn_err cn_http_open(const struct cn_http_config *config, struct cn_http_server **server);
void cn_http_close(struct cn_http_server *server);

// Returns the descriptor that is readable when step has work. The server owns it.
int cn_http_descriptor(const struct cn_http_server *server);

// Returns the longest time to wait before step, at most most_ms. The server may have work without
// its descriptor being readable.
uint32_t cn_http_wait_ms(struct cn_http_server *server, uint32_t most_ms, uint64_t now_ms);

// Answers what came in. Does not wait.
cn_err cn_http_step(struct cn_http_server *server, uint64_t now_ms);

// Serves a connected stream socket like one that came in. Takes descriptor. For tests.
cn_err cn_http_adopt(struct cn_http_server *server, int descriptor);

// Returns the number of connections.
uint32_t cn_http_connections(const struct cn_http_server *server);
