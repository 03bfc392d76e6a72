// sim_group.h - boards of a group in a simulation, as far as membership sees them: processes that
// die and stand still, a network that loses, repeats and delays messages, rings that break.
//
// Time passes only in run. A broken promise of membership (two views of one epoch, an epoch that
// goes back) is kept in .broken and .text.
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
    struct cn_membership *membership; // NULL: down
    uint64_t persisted_epoch, taken_epoch;
    bool disk_full;
    uint64_t back_at_ms; // while down
    struct cn_state_tag tag;
    uint8_t job[CN_DIGEST_SIZE];
    bool in_view, ring_open;
    struct cn_membership_view view;
    uint64_t view_ms;
    uint64_t leave_at_ms; // 0: stays
    bool frozen;          // the process stands still
    bool deaf;            // PREPAREs to it are lost
    uint32_t lost;        // by its own heartbeats, in this view
    uint64_t lost_ms;     // when
};

struct cn_sim_group {
    uint64_t seed, draws;
    uint64_t now_ms;
    uint32_t count;
    struct cn_sim_node nodes[CN_SIM_NODES];
    struct cn_sim_flying flying[CN_SIM_FLYING];
    size_t flying_count;
    struct cn_view views[CN_SIM_VIEWS]; // every view that was accepted
    uint32_t sources[CN_SIM_VIEWS];
    size_t view_count;
    uint32_t loss_percent, copy_percent, delay_ms;
    uint32_t island;         // bit set of nodes cut off from the others
    uint32_t crash_permille; // for each node and second
    uint32_t min_members;
    uint32_t keyless;   // members that nobody has a pair key of, a bit each, as processes start
    uint64_t key_epoch; // of the pair keys of processes that start
    uint64_t rejoin_ms; // of processes that start; 0: CN_SIM_REJOIN_MS
    bool silent_rings;  // do not notice that a member is gone
    bool broken;        // a promise was broken; text says which
    char text[200];
};

// All boards are started.
struct cn_sim_group *cn_sim_group_open(uint64_t seed, uint32_t count);
void cn_sim_group_close(struct cn_sim_group *group);

// A process starts, from what was persisted; dies, and is started again after down_ms; gives its
// epoch up because of a lost member.
void cn_sim_group_start(struct cn_sim_group *group, uint32_t index);
void cn_sim_group_crash(struct cn_sim_group *group, uint32_t index, uint64_t down_ms);
void cn_sim_group_leave(struct cn_sim_group *group, uint32_t index, uint32_t lost);

void cn_sim_group_run(struct cn_sim_group *group, uint64_t duration_ms);

// All of a bit set of boards, and nobody else, are at work in one epoch.
bool cn_sim_group_agree(const struct cn_sim_group *group, uint32_t members);

// Keeps the first promise that was broken.
void cn_sim_group_complain(struct cn_sim_group *group, const char *text, uint64_t epoch);

// Evenly from [0, below).
uint32_t cn_sim_group_draw(struct cn_sim_group *group, uint32_t below);
