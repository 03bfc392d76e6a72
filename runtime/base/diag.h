// diag.h - messages to a person, collected by code that must not print.
//
// A function that checks input from outside takes a struct cn_diag and adds one line for each
// mistake, so that a user sees all mistakes of a file at once. The caller prints them. A line
// names the thing, the value found and the value wanted. A line about a file starts with
// "file:line:col: ".
//
// Threading: none; one object belongs to one thread.
#pragma once

#include <stddef.h>

#define CN_DIAG_LINES 20      // lines that are kept
#define CN_DIAG_LINE_SIZE 320 // bytes of a line, with its terminating 0

struct cn_diag {
    char lines[CN_DIAG_LINES][CN_DIAG_LINE_SIZE]; // the first lines added, each cut
    size_t count;                                 // number of lines added; may exceed CN_DIAG_LINES
};

void cn_diag_init(struct cn_diag *diag);

// Adds one line; format ends without a newline. diag may be NULL: the line is dropped.
void cn_diag_add(struct cn_diag *diag, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds the lines that more kept. Puts "path: " in front of each line that does not begin with
// "path:". diag may be NULL.
void cn_diag_add_about(struct cn_diag *diag, const char *path, const struct cn_diag *more);

// Returns the first line, or an empty string when there is none. Valid until the next init.
const char *cn_diag_first(const struct cn_diag *diag);
