// node_keys.h - when a board asks for new pair keys, and when it begins to use them.
//
// The aggregator raises the key epoch of a group when a member is revoked or enrolled again
// (transport/GROUP.md, "Key epochs"). A board fetches the new keys as soon as it hears of them. It
// uses them from the end of its round on, once all members that it hears have them, too. It waits
// for a member without them for at most three rounds, and for at most ten minutes. Pure decisions:
// the node acts. Threading: the owner thread of a node.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"

#define CN_KEY_ROUNDS 3       // rounds to wait for a member without the newest keys
#define CN_KEY_WAIT_MS 600000 // longest wait for such a member, however few rounds end

struct cn_node_keys {
    bool waits;                  // new keys wait to be used
    struct cn_manifest manifest; // the manifest with the keys that wait
    uint64_t since_ms;           // when the wait began
    uint32_t since_round;        // the board's round when the wait began
    uint64_t asked_ms;           // when the board last asked for new keys; 0: never
    uint64_t looked_ms;          // when a board that does not lead last looked at the round
    uint32_t looked_round;       // the board's own round at that time
    // The newest key epoch that a member claimed to have and that made the board look, and when.
    uint64_t claimed, claimed_ms;
    bool looking; // the board has asked for the round, which it does not watch otherwise
};

// Keeps the keys of a registration until they are used. With newer keys the wait does not begin
// again.
void cn_node_keys_keep(struct cn_node_keys *keys, const struct cn_manifest *manifest,
                       uint32_t round, uint64_t now_ms);

// Drops the keys that wait and wipes them.
void cn_node_keys_drop(struct cn_node_keys *keys);

// Returns true when the board must begin to use the keys that wait. forming: the group has no
// leader, so no round is under way, and perhaps none will be before this board uses them. behind:
// the members that are heard and lack the keys, as bits. Members without a pair key in the manifest
// are not waited for.
bool cn_node_keys_due(const struct cn_node_keys *keys, const struct cn_progress *progress,
                      bool forming, uint32_t behind, uint64_t now_ms);

// Returns true when the board must register again, because the news names a key epoch, or a number
// of boards in the group, that it does not know. used is the manifest whose keys are in use.
bool cn_node_keys_ask(struct cn_node_keys *keys, const struct cn_manifest *used,
                      const struct cn_round_info *news, uint64_t now_ms);

// Returns true when a board that does not lead must look at the round. It looks at the end of each
// round, at most every 5 s, and after 30 s without a round. claimed is the newest key epoch that a
// member says it has: if it is unknown here, the board looks within 1 s. A claim that a look does
// not confirm makes further claims count for nothing for 30 s.
bool cn_node_keys_look(struct cn_node_keys *keys, const struct cn_manifest *used, uint32_t round,
                       uint64_t claimed, uint64_t now_ms);
