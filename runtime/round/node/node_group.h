// node_group.h - the owner thread's part in the group: the messages of the members, the epochs.
//
// It hands views and knocks to the worker through the mailbox. Threading: the owner thread of a
// node; members is read by the worker while it runs, so keys change only while it does not.
#pragma once

#include <stdbool.h>

#include "runtime/base/log_limit.h"
#include "runtime/group/membership.h"
#include "runtime/port/peer_link.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/epoch/mailbox.h"

typedef cn_err cn_open_peer_link(const char *listen, const struct cn_member *members,
                                 uint32_t count, uint32_t self, struct cn_peer_link **link);

struct cn_node_group {
    const struct cn_group_settings *settings;
    struct cn_store *store;
    struct cn_peer_link *peers;             // NULL: a board alone, or not registered yet
    struct cn_membership *membership;       // NULL until the worker is ready
    struct cn_member members[CN_GROUP_MAX]; // with pair keys
    uint32_t self;
    uint64_t key_epoch;                // the newest of which this board has the pair keys
    uint64_t saved_epoch;              // the highest that went to the disk
    bool leads;                        // in the newest view
    struct cn_log_quota lines;         // about epochs and members
    struct cn_log_quota refusal_lines; // about members that are left out
};

// CN_EINVAL, and a line in the log, when the board is not in its own list of members.
cn_err cn_node_group_init(struct cn_node_group *group, const struct cn_settings *settings,
                          struct cn_store *store);
void cn_node_group_deinit(struct cn_node_group *group);

// Takes the pair keys of a registration and opens the link to the members again with them.
cn_err cn_node_group_connect(struct cn_node_group *group, cn_open_peer_link *open,
                             const struct cn_manifest *manifest);

// The members hear that this board has the keys of this epoch.
void cn_node_group_hold_keys(struct cn_node_group *group, uint64_t key_epoch);

// Whether another member leads the epoch that this board is in.
bool cn_node_group_is_led(const struct cn_node_group *group);

// The worker has left its epoch, or has none yet: the group forms. epoch is that of its checkpoint.
cn_err cn_node_group_left(struct cn_node_group *group, const struct cn_left *left,
                          const uint8_t job[CN_DIGEST_SIZE], uint64_t epoch, uint64_t now_ms);

// The worker has ended: membership is given up, the link stays.
void cn_node_group_leave(struct cn_node_group *group);

// Messages in and out. True when there is a new view: it is in the mailbox then.
bool cn_node_group_poll(struct cn_node_group *group, struct cn_mailbox *box, uint64_t now_ms);

// Writes into the upload what this board, as the leader, knows of the members; nothing for a board
// alone.
void cn_node_group_signs(const struct cn_node_group *group, uint64_t now_ms,
                         struct cn_link_upload *upload);
