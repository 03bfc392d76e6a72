// wrap.h - lines that fit the terminal they are printed to.
#pragma once

#define CN_WRAP_INDENT 4 // columns before the second and later lines of a paragraph

// Prints line, without a newline at its end, to standard output. Where that is a terminal, a line
// that is wider goes on below, indented by indent columns; it is broken at spaces, best at two of
// them or behind a semicolon. Elsewhere the line stays in one piece.
void cn_wrap_print(const char *line, unsigned indent);

// Prints each line of text so. Changes text.
void cn_wrap_print_all(char *text, unsigned indent);
