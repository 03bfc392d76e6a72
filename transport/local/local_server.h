// local_server.h - answers lines that programs of this machine send over Unix sockets.
//
// A client sends a line and gets a line. Each socket has CN_LOCAL_CONNECTIONS connections, so that
// clients of one socket cannot keep out those of another. A connection is closed when it completes
// no line and takes nothing of an answer for CN_LOCAL_IDLE_MS, and when its line is too long. While
// an answer is not taken in full, no further line of its connection is read. Threading: none;
// nothing blocks.
#pragma once

#include <stdint.h>

#include "runtime/base/bytes.h"

#define CN_LOCAL_SOCKETS 3
#define CN_LOCAL_CONNECTIONS 8
#define CN_LOCAL_IDLE_MS 30000
#define CN_LOCAL_LINE_MAX (64u << 10)   // bytes of a line without its end
#define CN_LOCAL_ANSWER_MAX (64u << 20) // bytes of an answer

// The process at the other end as the kernel names it. A user of another user namespace is 65534.
struct cn_local_peer {
    uint32_t uid;
    int32_t pid; // 0: not known
};

// Answers a line that a client sent to the socket with this number. The line's size bytes may be
// any except an end of line, and a 0 follows them. The server adds the end of line to the answer.
typedef void cn_local_handle(void *context, size_t socket, const struct cn_local_peer *peer,
                             const char *line, size_t size, struct cn_buffer *answer);

struct cn_local_config {
    int listening[CN_LOCAL_SOCKETS]; // descriptors; the server closes them
    size_t count;                    // of listening
    const char *too_long;            // the answer to a line that is too long
    const char *too_many;            // the answer to a connection beyond CN_LOCAL_CONNECTIONS
    void *context;                   // passed to handle
    cn_local_handle *handle;
};

struct cn_local_server;

// Takes the descriptors, also on an error.
cn_err cn_local_server_open(const struct cn_local_config *config, struct cn_local_server **server);
void cn_local_server_close(struct cn_local_server *server);

// Accepts connections and answers at most one line of each.
void cn_local_server_step(struct cn_local_server *server, uint64_t now_ms);
