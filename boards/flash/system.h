// system.h - whether the packages can run on a board's system, by what its package database says.
#pragma once

#include <stdint.h>

#include "boards/flash/payload.h"

struct cn_system {
    char architecture[16]; // of its libc6; "" when there is none
    char libc[64];         // version of its libc6
};

// Reads the text of /var/lib/dpkg/status. A text without libc6 leaves both fields empty.
void cn_system_read(const char *status, struct cn_system *system);

// Checks architecture ("all": any) and glibc; what names the board for messages. An exit code after
// saying what is wrong.
int cn_system_check(const struct cn_system *system, const char *architecture, const char *what);

// Says how the wizard is avoided when a default.target that leads to target waits for one:
// JetPack's nv-oem-config.target, which a board without a screen never leaves.
void cn_system_note_wizard(const char *target, const char *what);

// Checks that free_size bytes hold the payload and what its packages install. An exit code.
int cn_system_check_free(uint64_t free_size, const struct cn_payload *payload, const char *what);
