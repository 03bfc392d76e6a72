// enrol.h - enrols a board: the aggregator makes its key in the same step that puts it on the card.
//
// The aggregator is reached through its own program, on this machine or over ssh. cairn-flash never
// opens the aggregator's ledger. A key that reaches no card is revoked, so no board stays half
// enrolled.
#pragma once

#include <cjson/cJSON.h>

#include "boards/flash/board/target_options.h"
#include "boards/flash/tool/workspace.h"

// Tells whether --gateway names a gateway on another machine.
bool cn_enrol_is_remote(const char *gateway);

// Called with `enrolled` set before a board is enrolled that was not, so that the caller can note
// it: if this program is killed, the next one revokes the enrolment. Called once more without it
// when enrolling failed and nothing is left to revoke. Returns an exit code; if it is not
// CN_EXIT_DONE, nothing is enrolled.
typedef int cn_enrol_note(void *context, bool enrolled);

// Enrols the board and writes the path of its key file to path. With --key nothing is enrolled and
// path is that file. note may be NULL. Returns an exit code.
int cn_enrol_make(const struct cn_target_options *order, const struct cn_workspace *space,
                  cn_enrol_note *note, void *context, char *path, size_t size);

struct cn_enrolment {
    bool enrolled; // the aggregator lists the board, perhaps as revoked
    bool revoked, heard;
    bool away;        // the status could not be read; the gateway may answer later
    bool missing;     // the status could not be read; there is no cairn-aggregator
    char reason[256]; // why the status could not be read
};

// Calls take for each object of the aggregator's "status --json": the run, the boards, the groups.
// Returns an exit code. quiet: print no error.
int cn_enrol_list(const char *gateway, bool quiet, void (*take)(void *context, const cJSON *object),
                  void *context);

// Reads what the aggregator's status says about a board: heard is set when the aggregator has heard
// it since its key was made. Returns an exit code. quiet: print no error. When the aggregator could
// not be asked, away says whether asking again may help.
int cn_enrol_look(const char *gateway, const char *name, bool quiet, struct cn_enrolment *found);

// Revokes an enrolment that a killed program noted (cn_enrol_note), unless the board was heard:
// then it has its key, and *heard is set. Returns an exit code after printing what is wrong.
int cn_enrol_settle(const struct cn_target_options *order, bool *heard);

// Revokes the enrolment after a failure. Does nothing without --gateway. Returns an exit code after
// printing what happened.
int cn_enrol_revoke(const struct cn_target_options *order);
