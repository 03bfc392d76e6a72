// screen.h - finds out what a terminal can show, and draws colours and live lines on it.
//
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum cn_screen_color {
    CN_SCREEN_BOLD,
    CN_SCREEN_GREEN,
    CN_SCREEN_YELLOW,
    CN_SCREEN_RED,
};

// Returns whether a line of the stream can be drawn over: the stream is a terminal, and TERM is not
// dumb.
bool cn_screen_is_live(FILE *stream);

// Returns whether the stream shows colours: its lines can be drawn over, and NO_COLOR is not set
// (no-color.org).
bool cn_screen_has_colors(FILE *stream);

// Returns whether the locale's characters are UTF-8, so that blocks can be drawn.
bool cn_screen_has_blocks(void);

// Returns the width and height of the stream's terminal; 80 and 24 where they are not known.
unsigned cn_screen_columns(FILE *stream);
unsigned cn_screen_rows(FILE *stream);

// Returns the length in bytes of the part of a UTF-8 text that fits in width columns.
int cn_screen_fit(const char *text, unsigned width);

// Prints text, coloured where the stream shows colours.
void cn_screen_paint(FILE *stream, enum cn_screen_color color, const char *text);

// Draws a line, cut to the width of the terminal and without a newline. The next output overwrites
// the line. Does nothing where cn_screen_is_live is false.
void cn_screen_draw(FILE *stream, const char *text);

// Removes what cn_screen_draw drew.
void cn_screen_clear(FILE *stream);

#define CN_SCREEN_LEFT_SIZE 40

// Writes how long the rest takes at the pace so far, such as "about 3 min left", when done of total
// parts are done after elapsed_ms. Writes "" while the pace is not known, and in the last second.
void cn_screen_time_left(uint64_t elapsed_ms, uint64_t done, uint64_t total,
                         char text[CN_SCREEN_LEFT_SIZE]);
