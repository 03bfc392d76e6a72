// sim_group.h - simulates the boards of a group as far as membership sees them.
//
// Processes die and stand still, the network loses, repeats and delays messages, and rings break.
// Time passes only in cn_sim_group_run. The first broken promise of membership (two views of one
// epoch, an epoch that goes back) is kept in broken and text.
#pragma once

#include <stdbool.h>

#include "runtime/group/membership.h"
#include "runtime/group/membership_wire.h"

#define CN_SIM_NODES 5
#define CN_SIM_TICK_MS 10
#define CN_SIM_FLYING 4096
#define CN_SIM_VIEWS 4096
#define CN_SIM_FORM_MS 3000
#define CN_SIM_REJOIN_MS 1000
#define CN_SIM_FRESH_MS 750 // three heartbeats

// A message on its way.
struct cn_sim_flying {
    uint64_t due_ms;
    uint32_t from, to;
    size_t size;
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
};

// A board as far as membership sees it: what it persisted, its process, its ring.
struct cn_sim_node {
    struct cn_membership *membership; // NULL: the process is down
    uint64_t persisted_epoch, taken_epoch;
    bool disk_full;
    uint64_t back_at_ms; // when the process starts again; used while it is down
    struct cn_state_tag tag;
    uint8_t job[CN_DIGEST_SIZE];
    bool in_view, ring_open;
    struct cn_membership_view view;
    uint64_t view_ms;
    uint64_t leave_at_ms; // 0: does not leave
    bool frozen;          // the process stands still
    bool deaf;            // PREPARE messages to it are lost
    uint32_t lost;        // member that its own heartbeats lost in this view; UINT32_MAX: none
    uint64_t lost_ms;     // when it lost that member
};

struct cn_sim_group {
    uint64_t seed, draws;
    uint64_t now_ms;
    uint32_t count;
    struct cn_sim_node nodes[CN_SIM_NODES];
    struct cn_sim_flying flying[CN_SIM_FLYING];
    size_t flying_count;
    struct cn_view views[CN_SIM_VIEWS]; // every view that was accepted
    // For each of views, the rank whose state all others take.
    uint32_t sources[CN_SIM_VIEWS];
    size_t view_count;
    uint32_t loss_percent, copy_percent, delay_ms;
    uint32_t island;         // bit set of the nodes that are cut off from the others
    uint32_t crash_permille; // chance of a crash, for each node and second
    uint32_t min_members;
    uint32_t keyless;   // bit set of members whose pair keys nobody has, for processes that start
    uint64_t key_epoch; // epoch of the pair keys, for processes that start
    uint64_t rejoin_ms; // for processes that start; 0: CN_SIM_REJOIN_MS
    bool silent_rings;  // rings do not notice that a member is gone
    bool broken;        // a promise was broken; text says which
    char text[200];
};

// Opens a group of count boards and starts all of them.
struct cn_sim_group *cn_sim_group_open(uint64_t seed, uint32_t count);
void cn_sim_group_close(struct cn_sim_group *group);

// start begins a process from what was persisted. crash kills it and starts it again after down_ms.
// leave makes it give up its epoch because of a lost member.
void cn_sim_group_start(struct cn_sim_group *group, uint32_t index);
void cn_sim_group_crash(struct cn_sim_group *group, uint32_t index, uint64_t down_ms);
void cn_sim_group_leave(struct cn_sim_group *group, uint32_t index, uint32_t lost);

// Lets duration_ms of simulated time pass.
void cn_sim_group_run(struct cn_sim_group *group, uint64_t duration_ms);

// Says whether exactly the boards of a bit set are at work in one epoch.
bool cn_sim_group_agree(const struct cn_sim_group *group, uint32_t members);

// Records a broken promise; only the first one is kept.
void cn_sim_group_complain(struct cn_sim_group *group, const char *text, uint64_t epoch);

// Draws a number from [0, below) with equal chances.
uint32_t cn_sim_group_draw(struct cn_sim_group *group, uint32_t below);
