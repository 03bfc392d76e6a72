// status_view.h - a page of lines on a terminal: drawn again and again, paused and scrolled by
// keys.
//
// Where no keys can be read, or nothing can be drawn over, all lines are printed. Threading: none.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/error.h"
#include "runtime/command/terminal/keys.h"
#include "runtime/command/terminal/screen.h"

#define CN_STATUS_PLAIN (-1) // of a line that has no enum cn_screen_color

struct cn_status_view { // zero it before use
    bool live;          // lines can be drawn over
    bool keyed;         // keys can be read
    bool paused;        // by a person: what is shown stays
    struct cn_keys keys;
    FILE *page;             // of the lines that are being added; NULL: none are
    char *text;             // owned; lines, each a colour mark, a text and a newline
    size_t size;            // bytes of text
    unsigned count, top;    // lines, and the first one that is shown
    unsigned columns, rows; // of the terminal
};

// Looks at the terminal, and takes its keys.
void cn_status_view_open(struct cn_status_view *view);
// Restores the terminal. Call it in any case.
void cn_status_view_close(struct cn_status_view *view);

// Begins another page.
cn_err cn_status_view_begin(struct cn_status_view *view);
// Adds a line, cut to the width.
void cn_status_view_add(struct cn_status_view *view, int color, const char *line);
// Shows the page. last: it stays when the program ends, so all of its lines are shown.
void cn_status_view_show(struct cn_status_view *view, bool last);

// Waits, and follows keys meanwhile: at least wait_ms, and as long as a person pauses the view.
// Returns false when a person ends the view, or stop is set.
bool cn_status_view_wait(struct cn_status_view *view, uint32_t wait_ms, const atomic_bool *stop);
