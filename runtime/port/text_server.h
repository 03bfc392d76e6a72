// text_server.h - the contract of a small HTTP server for one text, such as a board's metrics.
//
// Threading: one thread, that of the caller's loop, also for the text. Nothing blocks.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/profile/profile.h"

struct cn_text_server;

// Appends the text to out.
typedef cn_err cn_text_produce(void *context, struct cn_buffer *out);

struct cn_text_server_ops {
    // Listens as the section http of the profile says. The text is at path, with the media type
    // type; both are borrowed until close. /healthz answers "ok". produce is called for the text at
    // most once a second. Returns CN_EEXIST when another program listens there, or an error of the
    // token file; the log names the address or the file.
    cn_err (*open)(const struct cn_http_settings *http, const char *path, const char *type,
                   cn_text_produce *produce, void *context, struct cn_text_server **server);
    void (*close)(struct cn_text_server *server);
    // Returns a descriptor that is readable when step has work. Call step at least every 100 ms in
    // any case. The server owns the descriptor.
    int (*descriptor)(const struct cn_text_server *server);
    // Answers requests that came in. now_ms is cn_platform_now_ms.
    cn_err (*step)(struct cn_text_server *server, uint64_t now_ms);
};
