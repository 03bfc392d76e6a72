// node_care.h - the node's side of living on a board: sensors, pauses, energy, hooks.
#pragma once

#include "runtime/profile/profile.h"
#include "runtime/round/care.h"
#include "runtime/round/mailbox.h"

struct cn_node_care {
    const struct cn_settings *settings;
    struct cn_sensors *sensors;
    struct cn_care_rules rules;
    struct cn_care care;
    struct cn_reading reading;
    uint64_t read_ms;
    uint32_t round, version; // of the last progress
    double round_j, last_j;  // energy of this round so far, and of the one before
    bool warned;             // that a sensor of the profile is missing
};

// settings is borrowed. Without sensors or rules nothing is ever paused.
cn_err cn_node_care_init(struct cn_node_care *care, const struct cn_settings *settings);
void cn_node_care_deinit(struct cn_node_care *care);

// Reads and decides, once a second. True when the pause began, ended or has another reason; the
// log and the hook were told.
bool cn_node_care_poll(struct cn_node_care *care, const struct cn_progress *progress,
                       uint64_t now_ms);
