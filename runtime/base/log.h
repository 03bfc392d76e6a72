// log.h - one line for each event, on standard error.
//
// A line is "TIME LEVEL area: message"; docs/log.md has the formats. Levels, format and name are
// state of the process; a main program sets them once at start. Secrets, weights and samples are
// never logged.
// Threading: any thread, except where a function says otherwise. Lines do not mix: each is written
// with one system call.
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
    CN_LOG_JOURNAL, // with a priority instead of the time, since journald adds the time
    CN_LOG_JSON,    // one JSON object for each line
};

#define CN_LOG_AREAS 16     // most areas with a level of their own
#define CN_LOG_AREA_SIZE 24 // bytes of an area's name, with its terminating 0

// Sets the level of all areas that have none of their own. It is CN_LOG_INFO at first.
void cn_log_set_level(enum cn_log_level level);

// Gives one area a level of its own. Returns CN_ERANGE for an empty or too long name, or when
// CN_LOG_AREAS other areas have a level of their own. Call it before any thread is started.
cn_err cn_log_set_area_level(const char *area, enum cn_log_level level);

// Sets the format of later lines. It is CN_LOG_TEXT at first.
void cn_log_set_format(enum cn_log_format format);

// Returns CN_LOG_JOURNAL when standard error leads to journald: JOURNAL_STREAM names its device and
// inode (systemd.exec(5)). Otherwise CN_LOG_TEXT.
enum cn_log_format cn_log_find_format(void);

// Puts name in front of the area in each later line, for programs that share a log. Cuts it to 127
// characters. Call it before any thread is started.
void cn_log_set_name(const char *name);

// With over, each later line first clears the line of the terminal at which the cursor stands. Use
// it in a program that draws its progress there.
void cn_log_set_over_line(bool over);

// Returns whether a line of this level is written in this area.
bool cn_log_is_written(enum cn_log_level level, const char *area);

const char *cn_log_level_name(enum cn_log_level level);

// Reads "error", "warn", "info" or "debug". Returns CN_EINVAL for any other text.
cn_err cn_log_parse_level(const char *text, enum cn_log_level *level);

// Writes one line if cn_log_is_written(level, area). area names the unit that logs, for example
// "ledger". A line is cut to 1024 bytes.
void cn_log(enum cn_log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
