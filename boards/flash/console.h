// console.h - what cairn-flash says: lines for a person, or with --json one object a line.
//
// Threading: none. The mode is set once, when the options are read.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Exit codes beyond those of every program (runtime/command/command.h).
enum cn_flash_exit {
    CN_EXIT_UNSAFE = 4, // the target must not be written, or only when told
    CN_EXIT_VERIFY = 5, // what was read back is not what was written, or the image is damaged
    CN_EXIT_WAIT = 6,   // the board was not seen in time
};

void cn_console_set_json(bool json);

// Something was done, or will be. kind is a word for programs: "file", "enrolled", "done", ...
void cn_console_step(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// What is wrong, to standard error; next is what the user can do about it, or NULL.
void cn_console_error(const char *next, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// How far a long piece of work is: on a terminal one line that is rewritten, in a pipe a line every
// few seconds. begun_ms is when it began.
void cn_console_progress(const char *work, uint64_t done, uint64_t total, uint64_t begun_ms);

// Ends the line of the progress.
void cn_console_progress_end(void);
