// The key epochs that members claim to hold (transport/GROUP.md, "Key epochs").
#include "runtime/group/membership_private.h"

#define HEARD_MS 2000 // a claim counts for this time

void cn_membership_note_keys(struct other *other, const struct cn_membership_message *message,
                             uint64_t now_ms)
{
    if (message->type != CN_MEMBERSHIP_JOIN && message->type != CN_MEMBERSHIP_HEARTBEAT)
        return;
    other->key_epoch = message->key_epoch;
    other->key_ms = now_ms;
}

static bool is_heard(const struct other *other, uint64_t now_ms)
{
    return other->key_ms && now_ms - other->key_ms < HEARD_MS;
}

void cn_membership_hold_keys(struct cn_membership *membership, uint64_t key_epoch)
{
    membership->key_epoch = key_epoch;
}

uint32_t cn_membership_keys_behind(const struct cn_membership *membership, uint64_t key_epoch,
                                   uint64_t now_ms)
{
    uint32_t members = 0;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];

        if (is_heard(other, now_ms) && other->key_epoch < key_epoch)
            members |= cn_membership_bit(i);
    }
    return members;
}

uint64_t cn_membership_newest_keys(const struct cn_membership *membership, uint64_t now_ms)
{
    uint64_t newest = membership->key_epoch;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];

        if (is_heard(other, now_ms) && other->key_epoch > newest)
            newest = other->key_epoch;
    }
    return newest;
}
