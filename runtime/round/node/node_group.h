// node_group.h - the owner thread's part in the group: the messages of the members and the epochs.
//
// It hands views and requests to re-form the group to the worker through the mailbox.
// Threading: the owner thread of a node. The worker reads members while it runs, so keys may change
// only while it does not.
#pragma once

#include <stdbool.h>

#include "runtime/base/log_limit.h"
#include "runtime/group/membership.h"
#include "runtime/port/link.h"
#include "runtime/port/peer_link.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/epoch/mailbox.h"

// Opens the link to the members; a function of the ports.
typedef cn_err cn_open_peer_link(const char *listen, const struct cn_member *members,
                                 uint32_t count, uint32_t self, struct cn_peer_link **link);

struct cn_node_group {
    const struct cn_group_settings *settings;
    struct cn_store *store;
    struct cn_peer_link *peers;             // NULL: the board is alone or not registered yet
    struct cn_membership *membership;       // NULL until the worker is ready
    struct cn_member members[CN_GROUP_MAX]; // with pair keys
    uint32_t self;                          // index of this board in members
    uint64_t key_epoch;                     // newest key epoch whose pair keys this board has
    uint64_t used_key_epoch;                // key epoch of the pair keys in use
    uint64_t saved_epoch;                   // highest epoch of these keys on the disk
    bool leads;                             // this board leads the newest view
    struct cn_log_quota lines;              // limits log lines about epochs and members
    struct cn_log_quota refusal_lines;      // limits log lines about members that are left out
};

// Borrows settings and store. Returns CN_EINVAL, and logs it, when the board is not in its own list
// of members.
cn_err cn_node_group_init(struct cn_node_group *group, const struct cn_settings *settings,
                          struct cn_store *store);
void cn_node_group_deinit(struct cn_node_group *group);

// Takes the pair keys of a registration and opens the link to the members again with them. Returns
// CN_EINVAL when another program uses the port of group.listen. fault then says so, to people at
// the aggregator, too.
cn_err cn_node_group_connect(struct cn_node_group *group, cn_open_peer_link *open,
                             const struct cn_manifest *manifest, char fault[CN_FAULT_SIZE]);

// Tells the members that this board has the pair keys of this key epoch.
void cn_node_group_hold_keys(struct cn_node_group *group, uint64_t key_epoch);

// Returns whether another member leads the epoch that this board is in.
bool cn_node_group_is_led(const struct cn_node_group *group);

// Makes the group form after the worker has left its epoch, or when it is ready for its first one.
// job is a digest that must be equal on all members; epoch is the one in the worker's checkpoint.
cn_err cn_node_group_left(struct cn_node_group *group, const struct cn_left *left,
                          const uint8_t job[CN_DIGEST_SIZE], uint64_t epoch, uint64_t now_ms);

// Leaves the group, which is told. The link to the members stays open.
void cn_node_group_leave(struct cn_node_group *group);
// Leaves the group without a word: the members wait for this board.
void cn_node_group_drop(struct cn_node_group *group);

// Receives and sends messages. Returns true when it has put a new view into the mailbox.
bool cn_node_group_poll(struct cn_node_group *group, struct cn_mailbox *box, uint64_t now_ms);

// Writes into the upload what this board, as the leader, knows of the members. A board alone has no
// members to write.
void cn_node_group_signs(const struct cn_node_group *group, uint64_t now_ms,
                         struct cn_link_upload *upload);
