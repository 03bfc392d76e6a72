// audited.h - lines in the audit for commands that write to the state themselves (audit.h).
#pragma once

#include <stdint.h>

#include "aggregator/daemon/setup.h"

struct cn_audited {
    char state[CN_PATH_SIZE]; // of the gateway, also when the command is about a submitted job
    char job[CN_NAME_SIZE];   // the submitted job; "": the gateway's own
    const char *command;      // borrowed
    const char *key, *value;  // an argument; borrowed; key is NULL without one
    uint64_t seq;             // of the line "asked"
};

// Writes that the command was asked for, before its effect. setup: open; key names an argument;
// NULL: there is none. Returns the exit code, after printing why the command may not go on.
int cn_audited_begin(struct cn_audited *audited, const struct cn_setup *setup, const char *command,
                     const char *key, const char *value);
// Writes one line about something that happens whether or not the line can be written.
void cn_audited_note(const char *state, const char *what, const char *key, const char *value);
// Writes whether the command was carried out. result is its exit code, which is returned.
int cn_audited_end(const struct cn_audited *audited, int result);
