// system.h - checks, from a board's package database, that the packages can run on its system.
#pragma once

#include <stdint.h>

#include "boards/flash/board/payload.h"

struct cn_system {
    char architecture[16]; // architecture of its libc6; "" when it has none
    char libc[64];         // version of its libc6
};

// Reads the text of /var/lib/dpkg/status. Both fields stay empty when the text has no libc6.
void cn_system_read(const char *status, struct cn_system *system);

// Checks the architecture ("all": any) and the glibc version. what names the board in messages.
// Returns an exit code after printing what is wrong.
int cn_system_check(const struct cn_system *system, const char *architecture, const char *what);

// Prints how to avoid JetPack's wizard when target, the link target of default.target, is
// nv-oem-config.target. A board without a screen would wait in that wizard forever.
void cn_system_note_wizard(const char *target, const char *what);

// Checks that free_size bytes are enough for the payload and its installed packages. Returns an
// exit code.
int cn_system_check_free(uint64_t free_size, const struct cn_payload *payload, const char *what);
