// enrol.h - the key of a board: made by the aggregator in the same step that puts it on the card.
//
// The aggregator is reached by its own program, here or over ssh; cairn-flash never opens its
// ledger. A key that ends on no card is revoked again: nothing stays half-enrolled.
#pragma once

#include "boards/flash/target_options.h"
#include "boards/flash/workspace.h"

// Enrols the board and leaves its key in the file path. An exit code.
int cn_enrol_make(const struct cn_target_options *order, const struct cn_workspace *space,
                  char *path, size_t size);

struct cn_enrolment {
    bool enrolled; // once: it may be revoked
    bool revoked, heard;
};

// What the aggregator's status says of a board. An exit code; quiet: without saying what is wrong.
int cn_enrol_look(const char *gateway, const char *name, bool quiet, struct cn_enrolment *found);

// Takes the enrolment back after a failure. Without --gateway there is nothing to take back.
void cn_enrol_revoke(const struct cn_target_options *order);

// Runs "cairn-aggregator COMMAND [OPTION] PROFILE" where the gateway is; the result is to be
// deinitialised. CN_EINVAL after saying so when gateway is not understood.
struct cn_process_result;
cn_err cn_enrol_ask(const char *gateway, const char *command, const char *option,
                    struct cn_process_result *result);
