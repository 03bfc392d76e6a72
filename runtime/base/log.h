// log.h - one line for each event, on standard error.
//
// A line is "LEVEL area: message". Level and name are the only process-wide state of the
// runtime; a main program sets them once at start. Secrets, weights and samples are never logged.
// Threading: any thread; a line is written with one call.
#pragma once

#include "runtime/base/error.h"

enum cn_log_level {
    CN_LOG_ERROR,
    CN_LOG_WARN,
    CN_LOG_INFO,
    CN_LOG_DEBUG,
};

void cn_log_set_level(enum cn_log_level level);

// What stands in front of the area in each line from here on, before any thread: the name of one of
// several that share a log. At most 127 characters.
void cn_log_set_name(const char *name);

// Reads "error", "warn", "info" or "debug". CN_EINVAL for anything else.
cn_err cn_log_parse_level(const char *text, enum cn_log_level *level);

// area is the unit that speaks, for example "ledger".
void cn_log(enum cn_log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
