// web_server.h - the HTTP server with made-up answers, and clients over socket pairs, for tests.
//
// Server and clients are in one thread, and time is a number: the server works only in web_collect
// and web_ask, or when a test steps it. Answers are made by these paths:
//
//   /              fixed, open to everyone
//   /count?from=N  the number
//   /fresh         as /count without a number; an answer is kept for a second
//   /numbers?from= as /count; an answer is kept for a second
//   /slow?from=N   as /count, but takes longer than all answers may take at once
//   /board/NAME    the name
//   /failing/NAME  CN_ENOTFOUND for "unknown", otherwise CN_ENOSPC
//   /ready         status 503
//   /large         3 MiB
//
// Any mistake fails the test.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/http/http_server.h"

#define TOKEN "0123456789abcdef0123456789abcdef"
#define HOST "Host: localhost:8684\r\n"
#define STEPS 200 // more than any exchange here takes

struct web_server {
    struct cn_http_server *server;
    uint64_t now_ms;
    char *answer; // what the last exchange read, with a zero at its end
    size_t size;  // bytes of answer
};

// The number of answers that were made since the test set it to 0.
extern unsigned web_produced;

// Opens a server that goes by these names of hosts, and by that token; NULL: without one.
struct web_server web_open(const char *names, const char *token);
void web_close(struct web_server *web);

// Returns the client's end of a new connection, to be closed.
int web_join(struct web_server *web);

// Sends text from a client's end.
void web_put(int client, const char *text);

// Steps the server and reads web->answer until the server has nothing to do. Returns whether the
// server closed the connection.
bool web_collect(struct web_server *web, int client);

// Sends a request over a connection of its own. Returns the status of the answer; 0: none.
int web_ask(struct web_server *web, const char *text);

// Returns whether web->answer contains text.
bool web_says(const struct web_server *web, const char *text);
