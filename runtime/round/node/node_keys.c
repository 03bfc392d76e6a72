#include "runtime/round/node/node_keys.h"

#include <string.h>

#include "runtime/port/crypto.h"

#define ASK_MS 5000   // least time between two registrations for keys
#define LOOK_MS 5000  // least time between two looks at the round
#define TOLD_MS 1000  // least time between two looks while a member claims newer keys
#define IDLE_MS 30000 // time between two looks while no round ends

void cn_node_keys_keep(struct cn_node_keys *keys, const struct cn_manifest *manifest,
                       uint32_t round, uint64_t now_ms)
{
    if (!keys->waits) {
        keys->since_ms = now_ms;
        keys->since_round = round;
    }
    keys->waits = true;
    keys->manifest = *manifest;
}

void cn_node_keys_drop(struct cn_node_keys *keys)
{
    keys->waits = false;
    cn_crypto_wipe(&keys->manifest, sizeof(keys->manifest));
}

// Returns the members that have a pair key in the manifest, as bits.
static uint32_t keyed_members(const struct cn_manifest *manifest)
{
    static const uint8_t none[CN_KEY_SIZE];
    uint32_t members = 0;

    for (uint32_t i = 0; i < CN_GROUP_MAX; i++)
        if (memcmp(manifest->pair_keys[i], none, CN_KEY_SIZE) != 0)
            members |= 1u << i;
    return members;
}

bool cn_node_keys_due(const struct cn_node_keys *keys, const struct cn_progress *progress,
                      bool forming, uint32_t behind, uint64_t now_ms)
{
    uint32_t rounds = progress->round > keys->since_round ? progress->round - keys->since_round : 0;
    bool between = forming || progress->phase != CN_PHASE_TRAIN || rounds > 0;

    if (!keys->waits)
        return false;
    if (now_ms - keys->since_ms >= CN_KEY_WAIT_MS)
        return true;
    return between && (!(behind & keyed_members(&keys->manifest)) || rounds >= CN_KEY_ROUNDS);
}

static const struct cn_manifest *newest(const struct cn_node_keys *keys,
                                        const struct cn_manifest *used)
{
    return keys->waits ? &keys->manifest : used;
}

bool cn_node_keys_ask(struct cn_node_keys *keys, const struct cn_manifest *used,
                      const struct cn_round_info *news, uint64_t now_ms)
{
    const struct cn_manifest *known = newest(keys, used);
    bool others = news->group_boards && news->group_boards != known->group_boards;

    if (news->key_epoch <= known->key_epoch && !others)
        return false;
    if (keys->asked_ms && now_ms - keys->asked_ms < ASK_MS)
        return false;
    keys->asked_ms = now_ms;
    return true;
}

bool cn_node_keys_look(struct cn_node_keys *keys, const struct cn_manifest *used, uint32_t round,
                       uint64_t claimed, uint64_t now_ms)
{
    uint64_t pause_ms = round != keys->looked_round ? LOOK_MS : IDLE_MS;
    uint64_t known = newest(keys, used)->key_epoch;
    bool misled = keys->claimed > known && now_ms - keys->claimed_ms < IDLE_MS;
    bool told = claimed > known && !misled;

    if (told)
        pause_ms = TOLD_MS;
    if (now_ms - keys->looked_ms < pause_ms)
        return false;
    if (told) {
        keys->claimed = claimed;
        keys->claimed_ms = now_ms;
    }
    keys->looked_ms = now_ms;
    keys->looked_round = round;
    return true;
}
