// status_file.h - the file in which a node says where it is, for "cairn-node status".
#pragma once

#include <stdio.h>

#include "runtime/port/link.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/mailbox.h"
#include "runtime/round/node_care.h"

#define CN_STATUS_FILE_NAME "status.json"

struct cn_status_file {
    bool registered, down, has_news;
    const struct cn_manifest *manifest; // valid when registered
    struct cn_round_info news;          // the last the aggregator said
    struct cn_progress progress;
    char group[256]; // cn_membership_describe; "" for a board alone
    struct cn_link_stats bytes;
    const struct cn_node_care *care;
    char *written; // what the file holds; owned, free with cn_status_file_deinit
};

void cn_status_file_deinit(struct cn_status_file *status);

// Replaces the file when the content changed. A failure is logged at debug level: status is a
// courtesy.
void cn_status_file_write(struct cn_store *store, const struct cn_settings *settings,
                          struct cn_status_file *status);
