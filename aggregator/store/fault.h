// fault.h - why a board cannot train, as it told when it registered.
//
// The text is the board's word. It is cleaned here, so that logs, terminals and JSON can show it.
// A board that starts again registers before it knows whether it can train: its old error counts
// until it is seen at work. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"

struct cn_fault {
    char text[CN_FAULT_SIZE]; // cleaned; of the newest error, also when that is over
    uint64_t told_ms;         // clock of the newest registration with it; 0: the board can train
    bool in_doubt;            // the board has registered since without an error
};

// Takes the text of a registration, "" for none. True when the error is new: a line is due.
bool cn_fault_take(struct cn_fault *fault, const char *text, uint64_t now_ms);

// The board does what only a board that can train does. True when its error is over with that.
bool cn_fault_end(struct cn_fault *fault);

// Copies text and replaces by '?' what is not printable: control characters, invalid UTF-8,
// characters that change the direction or the place of others.
void cn_fault_clean(char to[CN_FAULT_SIZE], const char *text);
