// printable.h - which characters of a text that somebody else wrote may be shown on a terminal.
//
// Threading: no shared state.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Returns whether a character may be printed as it is. Control characters may not, nor may
// characters that are not seen or change the direction or the position of others.
bool cn_is_printable(uint32_t point);

// Replaces in text, in place, each character that may not be printed and each byte that is not
// UTF-8 with '?'. The text may get shorter.
void cn_printable_clean(char *text);

// As cn_printable_clean, but ends of lines stay.
void cn_printable_clean_lines(char *text);
