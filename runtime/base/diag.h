// diag.h - messages to a person, collected by code that must not print.
//
// A function that checks input from outside takes a struct cn_diag and adds one line for each thing
// it found, so that a user sees all mistakes of a file at once. The caller prints them. A line
// names the thing, the value found, the value wanted and, for files, starts with "file:line:col: ".
#pragma once

#include <stddef.h>

#define CN_DIAG_LINES 20
#define CN_DIAG_LINE_SIZE 320

struct cn_diag {
    char lines[CN_DIAG_LINES][CN_DIAG_LINE_SIZE]; // the first ones; longer lines are cut
    size_t count;                                 // all that were added, may exceed CN_DIAG_LINES
};

void cn_diag_init(struct cn_diag *diag);

// Adds one line, no newline at its end. diag may be NULL: the message is dropped.
void cn_diag_add(struct cn_diag *diag, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The first line, or an empty string.
const char *cn_diag_first(const struct cn_diag *diag);
