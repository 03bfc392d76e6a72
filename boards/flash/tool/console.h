// console.h - prints what cairn-flash does: lines for a person, or with --json one object per line.
//
// A message may quote what a board, a program or a file says. So what a terminal would obey is
// replaced with '?' (runtime/base/printable.h). Threading: none. The mode is set once, when the
// options are read.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Exit codes in addition to those of every program (runtime/command/command.h).
enum cn_flash_exit {
    CN_EXIT_UNSAFE = 4, // the target must not be written, or only with an explicit option
    CN_EXIT_VERIFY = 5, // the data read back differs from the data written, or the image is damaged
    CN_EXIT_WAIT = 6,   // the board did not report to the aggregator in time
};

void cn_console_set_json(bool json);

// Prints a step that was done or will be done. kind is a word for programs: "file", "enrolled",
// "done", ...
void cn_console_step(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Prints an error, to standard error except with --json. next says what the user can do about it;
// NULL: nothing.
void cn_console_error(const char *next, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Prints the progress of long work: on a terminal one line that is rewritten, in a pipe a line
// every few seconds. done and total are bytes. begun_ms is the time of cn_platform_now_ms at the
// start.
void cn_console_progress(const char *work, uint64_t done, uint64_t total, uint64_t begun_ms);

// Erases the progress line from the terminal. Does nothing when none is shown.
void cn_console_progress_end(void);
