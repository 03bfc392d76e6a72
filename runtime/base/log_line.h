// log_line.h - how one event becomes one line of the log; docs/log.md has the formats.
//
// Threading: any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/log.h"

#define CN_LOG_LINE_SIZE 1024 // longest line, with its newline

struct cn_log_event {
    enum cn_log_level level;
    const char *name;    // name of the process among those that share a log; "": none
    const char *area;    // the unit that logs
    const char *message; // any bytes
    int64_t unix_ms;     // time since 1970 by the system's clock, which may never have been set
    uint64_t boot_ms;    // time since boot
};

// Writes the line of event, newline included, without a terminating 0. Returns its length in bytes.
// A message that is too long is cut. Control characters and bytes that are not UTF-8 are written as
// escapes, so that an event is always one line.
size_t cn_log_write_line(enum cn_log_format format, const struct cn_log_event *event,
                         char line[CN_LOG_LINE_SIZE]);
