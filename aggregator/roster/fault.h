// fault.h - why a board cannot train, as it said when it registered or in a report of its health.
//
// The text comes from the board, so it is not trusted. It is cleaned here, so that logs, terminals
// and JSON can show it. A restarted board registers before it knows whether it can train. Its
// earlier error therefore stays in force until the board is seen at work. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"

struct cn_fault {
    char text[CN_FAULT_SIZE]; // newest error, cleaned; it stays here after the error is over
    uint64_t told_ms;         // clock when the board last told an error; 0: the board can train
    bool in_doubt;            // the board has registered without an error since told_ms
};

// Takes the error text of a registration or a report; "" means no error. Returns true when the
// error is new and the caller should log it.
bool cn_fault_note(struct cn_fault *fault, const char *text, uint64_t now_ms);

// Call when the board does something that only a board that can train does. Returns true when this
// ends an error: the board has one, and has registered without one since.
bool cn_fault_end(struct cn_fault *fault);

// Copies text, cut at CN_FAULT_SIZE. Replaces with '?' what must not be printed: control
// characters, invalid UTF-8, and characters that change the direction or the position of others.
// Several blanks become one.
void cn_fault_clean(char to[CN_FAULT_SIZE], const char *text);

// Says whether the fault is told and its text begins with this one: a report of health has only the
// beginning.
bool cn_fault_begins(const struct cn_fault *fault, const char *text);
