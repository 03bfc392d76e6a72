// node_keys.h - when a board asks for new pair keys, and when it goes over to them.
//
// The aggregator raises the key epoch of a group when a member is revoked or enrolled again
// (transport/GROUP.md, "Key epochs"). A board fetches the new keys as soon as it hears of them. It
// uses them from the end of its round on, when every member that it hears has them too; a member
// that has not is waited for through three rounds and ten minutes at most. Pure decisions: the node
// acts. Threading: the owner thread of a node.
#pragma once

#include <stdbool.h>

#include "runtime/port/link.h"
#include "runtime/round/upkeep/progress.h"

#define CN_KEY_ROUNDS 3       // that a member without the newest keys is waited for
#define CN_KEY_WAIT_MS 600000 // and for no longer than this, where rounds do not end

struct cn_node_keys {
    bool waits;                  // there are keys that are not used yet:
    struct cn_manifest manifest; // these
    uint64_t since_ms;           // when the first of them came
    uint32_t since_round;        // the round of that time
    uint64_t asked_ms;           // when they were last asked for; 0: never
    uint64_t looked_ms;          // when a board that does not lead last looked at the round
    uint32_t looked_round;       // its own round of that time
    uint64_t claimed,
        claimed_ms; // the newest epoch that a member's word made it look for, and when
    bool looking;   // it has asked for the round, and does not watch otherwise
};

// Keeps the keys of a registration until they are used. Waiting goes on from the first of several.
void cn_node_keys_keep(struct cn_node_keys *keys, const struct cn_manifest *manifest,
                       uint32_t round, uint64_t now_ms);

// Nothing waits any more. Wipes the keys.
void cn_node_keys_drop(struct cn_node_keys *keys);

// True when the board goes over to the keys that wait. forming: the group has no leader, so no
// round of it goes on, and perhaps none will before this board has gone over too. behind: members
// that are heard and do not have them, a bit each; those that get no such key are not waited for.
bool cn_node_keys_due(const struct cn_node_keys *keys, const struct cn_progress *progress,
                      bool forming, uint32_t behind, uint64_t now_ms);

// True when a registration is due: the news tells of keys that the board does not have. used is the
// manifest whose keys are in use.
bool cn_node_keys_ask(struct cn_node_keys *keys, const struct cn_manifest *used,
                      const struct cn_round_info *news, uint64_t now_ms);

// True when a board that does not lead is to look at the round: at the end of each round, but not
// within 5 s, and after 30 s without one; within 1 s when claimed, the newest key epoch that a
// member says it has, is unknown here. When a look bears no claim out, none counts for 30 s.
bool cn_node_keys_look(struct cn_node_keys *keys, const struct cn_manifest *used, uint32_t round,
                       uint64_t claimed, uint64_t now_ms);
