#include "runtime/round/node/node_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/round/epoch/epoch_file.h"

#define MEMBERS_SIZE 256 // longest text about members; a longer one is cut

cn_err cn_node_group_init(struct cn_node_group *group, const struct cn_settings *settings,
                          struct cn_store *store)
{
    *group = (struct cn_node_group){.settings = &settings->group, .store = store};
    memcpy(group->members, settings->group.members, sizeof(group->members));
    if (settings->group.member_count == 0)
        return CN_OK;
    for (uint32_t i = 0; i < settings->group.member_count; i++) {
        if (strcmp(settings->group.members[i].name, settings->name) == 0) {
            group->self = i;
            return CN_OK;
        }
    }
    cn_log(CN_LOG_ERROR, "node", "group.members does not contain this board, '%s'", settings->name);
    return CN_EINVAL;
}

static void close_peers(struct cn_node_group *group)
{
    if (group->peers)
        group->peers->ops->close(group->peers);
    group->peers = NULL;
}

void cn_node_group_deinit(struct cn_node_group *group)
{
    cn_node_group_leave(group);
    close_peers(group);
    cn_crypto_wipe(group->members, sizeof(group->members));
}

void cn_node_group_hold_keys(struct cn_node_group *group, uint64_t key_epoch)
{
    group->key_epoch = key_epoch;
    if (group->membership)
        cn_membership_hold_keys(group->membership, key_epoch);
}

bool cn_node_group_is_led(const struct cn_node_group *group)
{
    return group->membership && !group->leads &&
           cn_membership_leader(group->membership) < group->settings->member_count;
}

cn_err cn_node_group_connect(struct cn_node_group *group, cn_open_peer_link *open,
                             const struct cn_manifest *manifest, char fault[CN_FAULT_SIZE])
{
    const struct cn_group_settings *settings = group->settings;
    cn_err err;

    for (uint32_t i = 0; i < settings->member_count; i++)
        memcpy(group->members[i].pair_key, manifest->pair_keys[i], CN_KEY_SIZE);
    group->used_key_epoch = manifest->key_epoch;
    cn_node_group_hold_keys(group, manifest->key_epoch);
    if (settings->member_count <= 1)
        return CN_OK;
    close_peers(group);
    err =
        open(settings->listen, group->members, settings->member_count, group->self, &group->peers);
    if (err) {
        snprintf(fault, CN_FAULT_SIZE, "%s cannot use group.listen %s: %s",
                 group->members[group->self].name, settings->listen,
                 err == CN_EEXIST ? "another program uses this UDP port" : cn_err_text(err));
        cn_log_within(&group->lines, cn_platform_now_ms(), CN_LOG_ERROR, "node", "%s", fault);
    }
    return err == CN_EEXIST ? CN_EINVAL : err; // counts as an error of the profile, logged above
}

// Returns the members without a pair key, as bits. They are not enrolled now.
static uint32_t keyless_members(const struct cn_node_group *group)
{
    static const uint8_t none[CN_KEY_SIZE];
    uint32_t members = 0;

    for (uint32_t i = 0; i < group->settings->member_count; i++)
        if (i != group->self && memcmp(group->members[i].pair_key, none, CN_KEY_SIZE) == 0)
            members |= 1u << i;
    return members;
}

static cn_err open_membership(struct cn_node_group *group, const struct cn_state_tag *tag,
                              const uint8_t job[CN_DIGEST_SIZE], uint64_t epoch, uint64_t now_ms)
{
    struct cn_membership_config config = {
        .self = group->self,
        .count = group->settings->member_count,
        .form_ms = group->settings->form_ms,
        .rejoin_ms = group->settings->rejoin_ms,
        .min_members = group->settings->min_members,
        .keyless = keyless_members(group),
        .key_epoch = group->key_epoch,
    };
    cn_err err;

    memcpy(config.job, job, CN_DIGEST_SIZE);
    err = cn_crypto_random(&config.boot_id, sizeof(config.boot_id));
    if (err)
        return err;
    group->saved_epoch = cn_epoch_file_load(group->store, group->used_key_epoch, epoch);
    return cn_membership_open(&config, group->saved_epoch, tag, now_ms, &group->membership);
}

static void note_unreachable(struct cn_node_group *group, uint32_t member, uint64_t now_ms)
{
    uint64_t pause_ms = cn_membership_unreachable(group->membership, member, now_ms);

    if (pause_ms)
        cn_log_within(
            &group->lines, now_ms, CN_LOG_WARN, "group",
            "%s is heard, but no connection for gradients comes about (%s, TCP): left out for "
            "%" PRIu64 " s; check group.listen and firewalls of both boards",
            group->members[member].name, group->members[member].address, pause_ms / 1000);
}

static void note_stalled(struct cn_node_group *group, const struct cn_left *left, uint64_t now_ms)
{
    uint32_t member;
    uint64_t pause_ms =
        cn_membership_stalled(group->membership, left->waited_ms, left->lost, now_ms, &member);

    if (pause_ms)
        cn_log_within(&group->refusal_lines, now_ms, CN_LOG_WARN, "group",
                      "calls of the group wait in vain again and again, and all members answer: %s "
                      "is left out for %" PRIu64 " s, to see whether it holds them up",
                      group->members[member].name, pause_ms / 1000);
}

cn_err cn_node_group_left(struct cn_node_group *group, const struct cn_left *left,
                          const uint8_t job[CN_DIGEST_SIZE], uint64_t epoch, uint64_t now_ms)
{
    if (!group->membership)
        return open_membership(group, &left->tag, job, epoch, now_ms);
    if (left->unopened && left->lost < group->settings->member_count)
        note_unreachable(group, left->lost, now_ms);
    if (left->waited_ms)
        note_stalled(group, left, now_ms);
    cn_membership_leave(group->membership, left->lost, &left->tag, now_ms);
    return CN_OK;
}

static void say_goodbye(struct cn_node_group *group)
{
    uint8_t message[CN_PEER_MESSAGE_MAX];
    size_t size = cn_membership_bye(group->membership, message);

    for (uint32_t i = 0; group->peers && i < group->settings->member_count; i++)
        if (i != group->self && group->peers->ops->send(group->peers, i, message, size))
            return; // the members will miss this board instead
}

void cn_node_group_drop(struct cn_node_group *group)
{
    cn_membership_close(group->membership);
    group->membership = NULL;
    group->leads = false;
}

void cn_node_group_leave(struct cn_node_group *group)
{
    if (group->membership)
        say_goodbye(group);
    cn_node_group_drop(group);
}

// Writes the epoch to the disk unless a higher one is there: a board may have proposed a higher
// epoch than the one that it enters.
static cn_err save_epoch(struct cn_node_group *group, uint64_t epoch)
{
    cn_err err;

    if (epoch <= group->saved_epoch)
        return CN_OK;
    err = cn_epoch_file_save(group->store, group->used_key_epoch, epoch);
    if (!err)
        group->saved_epoch = epoch;
    return err;
}

// Writes "; without board-3, board-4", or "" if no member is absent.
static void name_absent(const struct cn_node_group *group, const struct cn_view *view, char *text,
                        size_t size)
{
    const char *separator = "; without ";
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0, rank = 0; i < group->settings->member_count && used < size; i++) {
        if (rank < view->size && view->ranks[rank] == i) {
            rank++;
            continue;
        }
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", separator, group->members[i].name);
        separator = ", ";
    }
}

// Notes the present addresses of members that have moved.
static void find_members(const struct cn_node_group *group, struct cn_membership_view *view)
{
    for (uint32_t i = 0; i < group->settings->member_count; i++) {
        const char *address = group->peers->ops->address(group->peers, i);

        if (i != group->self && strcmp(address, group->members[i].address) != 0)
            snprintf(view->moved[i], CN_ADDRESS_SIZE, "%s", address);
    }
}

// Begins to use a view. Its epoch goes to the disk before a leader's COMMITs leave this board, and
// before work in the epoch begins.
static void use_view(struct cn_node_group *group, struct cn_mailbox *box,
                     struct cn_membership_view *view)
{
    cn_err err = save_epoch(group, view->view.epoch);
    char absent[MEMBERS_SIZE];

    if (err)
        cn_log_within(&group->lines, cn_platform_now_ms(), CN_LOG_WARN, "group",
                      "epoch %" PRIu64 " is not on disk: %s", view->view.epoch, cn_err_text(err));
    name_absent(group, &view->view, absent, sizeof(absent));
    cn_log_within(&group->lines, cn_platform_now_ms(), CN_LOG_INFO, "group",
                  "epoch %" PRIu64 ": rank %u of %u%s", view->view.epoch, view->view.rank,
                  view->view.size, absent);
    group->leads = view->view.rank == 0;
    find_members(group, view);
    cn_mailbox_put_view(box, view);
}

static void send_due(struct cn_node_group *group, uint64_t now_ms)
{
    uint8_t message[CN_PEER_MESSAGE_MAX];
    uint32_t member;
    size_t size;

    while (cn_membership_next(group->membership, now_ms, &member, message, &size)) {
        if (group->peers->ops->send(group->peers, member, message, size))
            return; // the next announcement repeats the message
    }
}

// Writes an epoch to the disk before other members hear of it. Returns whether there was one; if
// the disk fails, this board cannot lead.
static bool persist(struct cn_node_group *group, uint64_t now_ms)
{
    uint64_t epoch;
    cn_err err;

    if (!cn_membership_persist(group->membership, &epoch))
        return false;
    err = save_epoch(group, epoch);
    if (!err)
        return true;
    cn_log_within(&group->lines, now_ms, CN_LOG_WARN, "group",
                  "%s cannot lead others: epoch %" PRIu64 " is not on its disk: %s",
                  group->members[group->self].name, epoch, cn_err_text(err));
    cn_membership_unable(group->membership, now_ms);
    return true;
}

static void tell_refused(struct cn_node_group *group, uint64_t now_ms)
{
    char why[CN_REFUSAL_SIZE];
    uint32_t member;

    while (cn_membership_refused(group->membership, now_ms, &member)) {
        cn_membership_explain(group->membership, group->members, member, why, sizeof(why));
        cn_log_within(&group->refusal_lines, now_ms, CN_LOG_ERROR, "group",
                      "%s: %s is left out until that ends", why, group->members[member].name);
    }
}

static void tell_leaps(struct cn_node_group *group, uint64_t now_ms)
{
    uint32_t member;

    while (cn_membership_leaps(group->membership, &member))
        cn_log_within(
            &group->refusal_lines, now_ms, CN_LOG_WARN, "group",
            "%s names an epoch that no group reaches by training: it, or a member that it "
            "heard, lies; revoke the first that the members' logs name",
            group->members[member].name);
}

static void tell_few(struct cn_node_group *group, uint64_t now_ms)
{
    char members[MEMBERS_SIZE];
    uint32_t present;

    if (!cn_membership_few(group->membership, now_ms, &present))
        return;
    cn_membership_describe(group->membership, group->members, now_ms, members, sizeof(members));
    cn_log_within(&group->lines, now_ms, CN_LOG_WARN, "group",
                  "waiting: %u of group.min_members %u are there; %s", present,
                  group->settings->min_members, members);
}

static void abort_epoch(struct cn_node_group *group, struct cn_mailbox *box)
{
    uint32_t member;

    if (!cn_membership_lost(group->membership, &member))
        return;
    cn_log_within(&group->lines, cn_platform_now_ms(), CN_LOG_WARN, "group",
                  "%s (%s) gives no sign of life: the epoch ends", group->members[member].name,
                  group->members[member].address);
    cn_mailbox_abort(box, member);
}

bool cn_node_group_poll(struct cn_node_group *group, struct cn_mailbox *box, uint64_t now_ms)
{
    uint8_t message[CN_PEER_MESSAGE_MAX];
    struct cn_membership_view view;
    bool changed = false;
    uint32_t member;
    size_t size;

    if (!group->peers)
        return false;
    while (group->peers->ops->poll(group->peers, &member, message, &size) == CN_OK) {
        if (group->membership)
            cn_membership_receive(group->membership, member, message, size, now_ms);
    }
    if (!group->membership)
        return false;
    send_due(group, now_ms);
    if (persist(group, now_ms))
        send_due(group, now_ms);
    if (cn_membership_view(group->membership, &view)) {
        use_view(group, box, &view);
        changed = true;
        send_due(group, now_ms);
    }
    tell_refused(group, now_ms);
    tell_leaps(group, now_ms);
    tell_few(group, now_ms);
    abort_epoch(group, box);
    cn_mailbox_put_reform_request(box, group->leads &&
                                           cn_membership_has_reform_request(group->membership));
    return changed;
}

void cn_node_group_signs(const struct cn_node_group *group, uint64_t now_ms,
                         struct cn_link_upload *upload)
{
    uint32_t silent_s[CN_GROUP_MAX];

    upload->member_count = 0;
    if (!group->membership)
        return;
    cn_membership_silence(group->membership, now_ms, silent_s);
    for (uint32_t i = 0; i < group->settings->member_count; i++)
        upload->members[upload->member_count++] = (struct cn_member_sign){
            .id = cn_name_hash(group->members[i].name), .missing_s = silent_s[i]};
}
