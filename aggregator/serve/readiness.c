#include "aggregator/serve/readiness.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define MIB (1u << 20)

static cn_err say(struct cn_buffer *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static cn_err say(struct cn_buffer *out, const char *format, ...)
{
    char line[CN_INVITABLE_TEXT + 16];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    return cn_buffer_append(out, line, (size_t)length);
}

static cn_err say_groups(const struct cn_readiness *readiness, struct cn_buffer *out)
{
    char text[CN_INVITABLE_TEXT];
    if (readiness->groups.enrolled < readiness->quorum)
        cn_invitable_enrolled_text(readiness->word, readiness->quorum, readiness->groups.enrolled,
                                   text);
    else
        cn_invitable_text(&readiness->groups, readiness->word, readiness->quorum, text);
    return say(out, "groups: %s\n", text);
}

cn_err cn_readiness_write(const struct cn_readiness *readiness, struct cn_buffer *out, bool *ready)
{
    cn_err err = CN_OK;
    *ready = true;
    if (readiness->trouble) {
        *ready = false;
        err = say(out, "store: the run waits: %s\n", cn_err_text(readiness->trouble));
    }
    if (!err && readiness->disk_free && readiness->disk_free < readiness->disk_reserve) {
        *ready = false;
        err = say(out, "disk: %" PRIu64 " MiB are free, below storage.reserve, %" PRIu64 " MiB\n",
                  readiness->disk_free / MIB, readiness->disk_reserve / MIB);
    }
    if (!err && !readiness->over && readiness->groups.count < readiness->quorum) {
        *ready = false;
        err = say_groups(readiness, out);
    }
    return !err && *ready ? say(out, "ok\n") : err;
}
