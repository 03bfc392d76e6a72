// log.h - one line for each event, on standard error.
//
// A line is "TIME LEVEL area: message"; docs/log.md has the formats. Level, format and name are the
// only process-wide state of the runtime; a main program sets them once at start. Secrets, weights
// and samples are never logged.
// Threading: any thread; a line is written with one call.
#pragma once

#include <stdbool.h>

#include "runtime/base/error.h"

enum cn_log_level {
    CN_LOG_ERROR,
    CN_LOG_WARN,
    CN_LOG_INFO,
    CN_LOG_DEBUG,
};

enum cn_log_format {
    CN_LOG_TEXT,    // with the time
    CN_LOG_JOURNAL, // with a priority in place of the time, which journald knows itself
    CN_LOG_JSON,    // an object a line
};

#define CN_LOG_AREAS 16     // areas with a level of their own, at most
#define CN_LOG_AREA_SIZE 24 // of an area's name, with its end

void cn_log_set_level(enum cn_log_level level);

// Sets the level of one area; the others keep theirs. Returns CN_ERANGE for an empty or too long
// name, or when too many areas have one. Call it before any thread is started.
cn_err cn_log_set_area_level(const char *area, enum cn_log_level level);

void cn_log_set_format(enum cn_log_format format);

// Returns CN_LOG_JOURNAL when standard error leads to journald: JOURNAL_STREAM names its device and
// inode (systemd.exec(5)). Otherwise CN_LOG_TEXT.
enum cn_log_format cn_log_find_format(void);

// Puts name in front of the area in each later line, for programs that share a log. Cuts it to 127
// characters. Call it before any thread is started.
void cn_log_set_name(const char *name);

// With over, each later line first clears the line of the terminal that it begins on, where a
// program draws its progress.
void cn_log_set_over_line(bool over);

// Returns whether a line of this level is written in this area.
bool cn_log_is_written(enum cn_log_level level, const char *area);

const char *cn_log_level_name(enum cn_log_level level);

// Reads "error", "warn", "info" or "debug". Returns CN_EINVAL for any other text.
cn_err cn_log_parse_level(const char *text, enum cn_log_level *level);

// Writes one line if level is within the level that was set. area names the unit that logs, for
// example "ledger". A line is cut to 1024 bytes.
void cn_log(enum cn_log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
