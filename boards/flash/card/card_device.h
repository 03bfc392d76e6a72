// card_device.h - decides whether a device may be written to as a card, and asks the user.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "boards/flash/card/disk.h"

// What the user said about writing to a device.
struct cn_card_permission {
    bool yes;     // nobody is asked
    bool fixed;   // the device may be one that cannot be taken out
    bool dry_run; // nothing is written, so nobody is asked
    bool json;    // the program's output is read by a program, so nobody can be asked
};

// Prints why the device at path is not written to, and returns CN_EXIT_UNSAFE. next says what the
// user can do about it; NULL: nothing.
int cn_card_device_refuse(const char *next, const char *path, const char *why);

// Checks that the device at path is a whole, unused, writable card of at least needed_size bytes,
// and describes it. Returns an exit code after printing why it is not.
int cn_card_device_check(const char *path, uint64_t needed_size,
                         const struct cn_card_permission *permission, struct cn_disk *device);

// Says what will be lost, and asks for a yes unless permission has it. Returns an exit code.
int cn_card_device_confirm(const char *path, const struct cn_disk *device, const char *board,
                           const struct cn_card_permission *permission);
