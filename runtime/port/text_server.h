// text_server.h - the contract of a small HTTP server for one text, such as a board's metrics.
//
// Threading: that of the caller's loop. Nothing waits.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/profile/profile.h"

struct cn_text_server;

// Writes the text.
typedef cn_err cn_text_produce(void *context, struct cn_buffer *out);

struct cn_text_server_ops {
    // Listens as http of the profile says: the text is at path, with this media type; /healthz
    // answers "ok". It is made at most once a second. Errors: CN_EEXIST when another program
    // listens there, which the log says; those of the token file, which the log names.
    cn_err (*open)(const struct cn_http_settings *http, const char *path, const char *type,
                   cn_text_produce *produce, void *context, struct cn_text_server **server);
    void (*close)(struct cn_text_server *server);
    // Returns a descriptor that is readable when step has work. Call step at least each 100 ms,
    // too.
    int (*descriptor)(const struct cn_text_server *server);
    cn_err (*step)(struct cn_text_server *server, uint64_t now_ms);
};
