// keys.h - the keys that a person presses while a program draws on the terminal.
//
// The terminal hands over each key at once and does not show it. cn_keys_close restores its modes.
// Ctrl-C stays a signal, and so do Ctrl-\ and a hang-up: the program must catch them, and close the
// keys. Ctrl-Z restores the modes for as long as the program is stopped. A program that goes on in
// the background has no keys until it is in the foreground again. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

enum cn_key {
    CN_KEY_NONE,  // no key was pressed in time
    CN_KEY_OTHER, // a key without a meaning here
    CN_KEY_QUIT,  // q, or the terminal is gone
    CN_KEY_PAUSE, // space, p
    CN_KEY_UP,    // arrow, k
    CN_KEY_DOWN,  // arrow, j
    CN_KEY_PAGE_UP,
    CN_KEY_PAGE_DOWN,
    CN_KEY_SUSPEND, // Ctrl-Z; cn_keys_wait carries it out
};

#define CN_KEYS_HELD 32

struct cn_keys { // zero it before use
    bool open;
    struct termios before;
    char held[CN_KEYS_HELD]; // bytes that were read and have not been returned as keys
    size_t count;
};

// Takes the keys of standard input, if that is a terminal with this program in its foreground.
// Returns whether keys can be read.
bool cn_keys_open(struct cn_keys *keys);
// Restores the terminal.
void cn_keys_close(struct cn_keys *keys);

// Returns the next key, or CN_KEY_NONE after timeout_ms or a signal.
enum cn_key cn_keys_wait(struct cn_keys *keys, uint32_t timeout_ms);

// Reads a key from the bytes of a terminal (ECMA-48, as xterm and the Linux console send them).
// Sets *used to its bytes, at least 1. size is at least 1.
enum cn_key cn_keys_parse(const char *bytes, size_t size, size_t *used);
