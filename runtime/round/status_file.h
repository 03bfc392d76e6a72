// status_file.h - the file in which a node says where it is, for "cairn-node status" and programs
// of the site's. One JSON object, replaced about once a second and not synced to disk: it informs,
// and nothing is decided by it. What does not apply or is not known is left out. README.md
// describes it.
#pragma once

#include "runtime/port/link.h"
#include "runtime/profile/profile.h"
#include "runtime/round/node_care.h"
#include "runtime/round/traffic.h"

#define CN_STATUS_FILE_NAME "status.json"

struct cn_status_file {
    const struct cn_settings *settings; // borrowed, as all pointers here
    const struct cn_node_care *care;
    const struct cn_traffic *traffic; // NULL without a network
    const struct cn_job *job;         // NULL: not known yet
    uint64_t run;
    struct cn_progress progress;

    // Of a node in a run.
    bool networked;
    bool registered, down, has_news;
    bool refused;              // by the aggregator; it is down then as well
    bool ahead;                // of the aggregator
    const char *group;         // its name
    struct cn_round_info news; // the last the aggregator said
    char members[256];         // cn_membership_describe; "" for a board alone
    const char *leader;        // "" while the group forms
    struct cn_link_stats bytes;
    struct cn_link_measure link;
};

// Replaces the file. A failure is logged at debug level: status is a courtesy.
void cn_status_file_write(const struct cn_status_file *status, uint64_t now_ms);
