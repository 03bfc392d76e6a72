// status_file.h - the file that shows what a node is doing, for "cairn-node status" and for
// programs of the site.
//
// It is one JSON object, replaced about once a second and not synced to disk: it only informs.
// Fields that do not apply or are not known are left out. runtime/round/README.md describes them.
#pragma once

#include "runtime/port/link.h"
#include "runtime/profile/profile.h"
#include "runtime/round/upkeep/traffic.h"
#include "runtime/round/upkeep/upkeep.h"

#define CN_STATUS_FILE_NAME "status.json"

struct cn_status_file {
    const struct cn_settings *settings; // borrowed, as are all pointers here
    const struct cn_upkeep *care;
    const struct cn_traffic *traffic; // NULL without a network
    const struct cn_job *job;         // NULL: not known yet
    uint64_t run;
    struct cn_progress progress;

    bool networked; // the node is in a run; the fields below are set
    bool registered, down, has_news;
    bool refused;              // the aggregator refuses this board; down is set, too
    bool ahead;                // this board is ahead of the aggregator
    const char *fault;         // why the board gave its run up; NULL: it did not
    const char *group;         // name of the group
    struct cn_round_info news; // the aggregator's last news of the round
    char members[256];         // text of cn_membership_describe; "" for a board alone
    const char *leader;        // name of the leader; "" while the group forms
    struct cn_link_stats bytes;
    struct cn_link_path_stats link;
};

// Returns why this board does or does not train now, in one line.
const char *cn_status_text(const struct cn_status_file *status);

// Replaces the file. A failure is logged at debug level only, as nothing depends on the file.
void cn_status_file_write(const struct cn_status_file *status, uint64_t now_ms);
