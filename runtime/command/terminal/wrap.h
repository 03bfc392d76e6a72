// wrap.h - prints lines wrapped at the width of the terminal.
#pragma once

#include <stddef.h>

#define CN_WRAP_INDENT 4 // columns before the second and later lines of a paragraph

// Returns the length in bytes of the part of text that fits in width columns, up to a space or the
// end. A first word that is wider stays whole. It ends preferably before two spaces or behind a
// semicolon.
size_t cn_wrap_fit(const char *text, unsigned width);

// Prints line, which has no newline, and a newline to standard output. On a terminal of at least 40
// columns, a line that is too wide continues below, indented by `indent` columns. Lines are broken
// at spaces, preferably at two in a row or after a semicolon. Elsewhere the line stays whole.
void cn_wrap_print(const char *line, unsigned indent);

// Prints each line of text as cn_wrap_print does. Overwrites the newlines in text.
void cn_wrap_print_all(char *text, unsigned indent);
