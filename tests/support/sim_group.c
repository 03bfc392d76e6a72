#include "tests/support/sim_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/random.h"

#define OPEN_MS 1200 // the time a ring takes to give up opening

uint32_t cn_sim_group_draw(struct cn_sim_group *group, uint32_t below)
{
    uint32_t out[4];

    cn_random_block(group->seed, 1, group->draws++, out);
    return out[0] % below;
}

void cn_sim_group_start(struct cn_sim_group *group, uint32_t index)
{
    struct cn_sim_node *node = &group->nodes[index];
    struct cn_membership_config config = {
        .self = index,
        .count = group->count,
        .form_ms = CN_SIM_FORM_MS,
        .rejoin_ms = group->rejoin_ms ? group->rejoin_ms : CN_SIM_REJOIN_MS,
        .min_members = group->min_members,
        .keyless = group->keyless & ~(1u << index),
        .key_epoch = group->key_epoch,
        .boot_id = ((uint64_t)cn_sim_group_draw(group, UINT32_MAX) << 8) + index};

    memcpy(config.job, node->job, sizeof(config.job));
    if (cn_membership_open(&config, node->persisted_epoch, &node->tag, group->now_ms,
                           &node->membership) != CN_OK)
        abort();
}

void cn_sim_group_crash(struct cn_sim_group *group, uint32_t index, uint64_t down_ms)
{
    struct cn_sim_node *node = &group->nodes[index];

    cn_membership_close(node->membership);
    node->membership = NULL;
    node->in_view = node->ring_open = false;
    node->back_at_ms = group->now_ms + down_ms;
}

struct cn_sim_group *cn_sim_group_open(uint64_t seed, uint32_t count)
{
    struct cn_sim_group *group = calloc(1, sizeof(*group));

    if (!group)
        abort();
    group->seed = seed;
    group->count = count;
    group->delay_ms = 5;
    group->now_ms = 1000;
    for (uint32_t i = 0; i < count; i++)
        cn_sim_group_start(group, i);
    return group;
}

void cn_sim_group_close(struct cn_sim_group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        cn_membership_close(group->nodes[i].membership);
    free(group);
}

static bool are_apart(const struct cn_sim_group *group, uint32_t a, uint32_t b)
{
    return ((group->island >> a) & 1) != ((group->island >> b) & 1);
}

static void post(struct cn_sim_group *group, uint32_t from, uint32_t to, const uint8_t *bytes,
                 size_t size)
{
    uint32_t copies = 1 + (cn_sim_group_draw(group, 100) < group->copy_percent);

    if (are_apart(group, from, to))
        return;
    for (uint32_t i = 0; i < copies; i++) {
        struct cn_sim_flying *flying = &group->flying[group->flying_count];

        if (cn_sim_group_draw(group, 100) < group->loss_percent ||
            group->flying_count == CN_SIM_FLYING)
            continue;
        *flying = (struct cn_sim_flying){.due_ms = group->now_ms + 1 +
                                                   cn_sim_group_draw(group, group->delay_ms),
                                         .from = from,
                                         .to = to,
                                         .size = size};
        memcpy(flying->bytes, bytes, size);
        group->flying_count++;
    }
}

static void deliver(struct cn_sim_group *group)
{
    for (size_t i = 0; i < group->flying_count;) {
        struct cn_sim_flying *flying = &group->flying[i];

        if (flying->due_ms > group->now_ms) {
            i++;
            continue;
        }
        if (group->nodes[flying->to].membership && !group->nodes[flying->to].frozen &&
            !(group->nodes[flying->to].deaf && flying->bytes[0] == CN_MEMBERSHIP_PREPARE))
            cn_membership_receive(group->nodes[flying->to].membership, flying->from, flying->bytes,
                                  flying->size, group->now_ms);
        *flying = group->flying[--group->flying_count]; // also reorders
    }
}

void cn_sim_group_complain(struct cn_sim_group *group, const char *text, uint64_t epoch)
{
    if (!group->broken)
        snprintf(group->text, sizeof(group->text), "seed %llu, %llu ms: %s, epoch %llu",
                 (unsigned long long)group->seed, (unsigned long long)group->now_ms, text,
                 (unsigned long long)epoch);
    group->broken = true;
}

// Checks that two accepted views of one epoch are the same view.
static void record(struct cn_sim_group *group, const struct cn_membership_view *view)
{
    for (size_t i = 0; i < group->view_count; i++) {
        const struct cn_view *old = &group->views[i];

        if (old->epoch != view->view.epoch)
            continue;
        if (old->size != view->view.size || group->sources[i] != view->source ||
            memcmp(old->ranks, view->view.ranks, old->size * sizeof(old->ranks[0])) != 0)
            cn_sim_group_complain(group, "two views", old->epoch);
    }
    if (group->view_count < CN_SIM_VIEWS) {
        group->sources[group->view_count] = view->source;
        group->views[group->view_count++] = view->view;
    }
}

// The number that a board proposed may be higher than that of the view that it takes then.
static void persist(struct cn_sim_node *node, uint64_t epoch)
{
    if (node->persisted_epoch < epoch)
        node->persisted_epoch = epoch;
}

static void take_view(struct cn_sim_group *group, uint32_t index)
{
    struct cn_sim_node *node = &group->nodes[index];
    struct cn_membership_view view;

    if (!cn_membership_view(node->membership, &view))
        return;
    if (group->crash_permille && cn_sim_group_draw(group, 100) == 0) {
        cn_sim_group_crash(group, index,
                           500); // between taking and storing: no other board saw the view
        return;
    }
    if (view.view.epoch <= node->taken_epoch)
        cn_sim_group_complain(group, "the epoch did not grow", view.view.epoch);
    node->taken_epoch = view.view.epoch;
    if (view.view.ranks[view.view.rank] != index)
        cn_sim_group_complain(group, "the rank is wrong", view.view.epoch);
    persist(node, view.view.epoch);
    record(group, &view);
    node->view = view;
    node->in_view = true;
    node->ring_open = false;
    node->view_ms = group->now_ms;
    node->leave_at_ms = 0;
    node->lost = UINT32_MAX;
}

// Returns the first member of the node's view that is down, in another view or cut off; UINT32_MAX
// if all are there.
static uint32_t absent_member(const struct cn_sim_group *group, uint32_t index)
{
    const struct cn_view *view = &group->nodes[index].view.view;

    for (uint32_t rank = 0; rank < view->size; rank++) {
        uint32_t member = view->ranks[rank];
        const struct cn_sim_node *node = &group->nodes[member];

        if (!node->membership || !node->in_view || node->view.view.epoch != view->epoch ||
            are_apart(group, index, member))
            return member;
    }
    return UINT32_MAX;
}

void cn_sim_group_leave(struct cn_sim_group *group, uint32_t index, uint32_t lost)
{
    struct cn_sim_node *node = &group->nodes[index];

    cn_membership_leave(node->membership, lost, &node->tag, group->now_ms);
    node->in_view = node->ring_open = false;
}

// Plays what the node does with its ring: it opens when all members are there, fails when one goes,
// and ends when a member asks to re-form.
static void train(struct cn_sim_group *group, uint32_t index)
{
    struct cn_sim_node *node = &group->nodes[index];
    uint32_t absent = absent_member(group, index);

    if (cn_membership_lost(node->membership, &node->lost)) {
        node->lost_ms = group->now_ms;
        cn_sim_group_leave(group, index, node->lost);
        return;
    }
    if (group->silent_rings && node->ring_open)
        return;
    if (absent == UINT32_MAX)
        node->ring_open = true;
    else if (node->ring_open || group->now_ms - node->view_ms > OPEN_MS) {
        if (!node->ring_open)
            cn_membership_unreachable(node->membership, absent, group->now_ms);
        cn_sim_group_leave(group, index, absent);
        return;
    }
    if (node->ring_open)
        node->tag.step++;
    if (node->view.view.rank != 0 || !cn_membership_has_reform_request(node->membership))
        return;
    if (!node->leave_at_ms)
        node->leave_at_ms = group->now_ms + 1 + cn_sim_group_draw(group, 200);
    if (group->now_ms >= node->leave_at_ms)
        cn_sim_group_leave(group, index, UINT32_MAX);
}

static void run_node(struct cn_sim_group *group, uint32_t index)
{
    struct cn_sim_node *node = &group->nodes[index];
    uint8_t bytes[CN_PEER_MESSAGE_MAX];
    uint64_t epoch;
    uint32_t to;
    size_t size;

    if (!node->membership) {
        if (group->now_ms >= node->back_at_ms)
            cn_sim_group_start(group, index);
        return;
    }
    if (cn_sim_group_draw(group, 100000) < group->crash_permille) {
        cn_sim_group_crash(group, index, cn_sim_group_draw(group, 3000));
        return;
    }
    if (node->frozen)
        return;
    take_view(group, index);
    if (node->membership && cn_membership_persist(node->membership, &epoch)) {
        if (group->crash_permille && cn_sim_group_draw(group, 100) == 0) {
            cn_sim_group_crash(group, index,
                               500); // between deciding and storing: no other board saw the number
            return;
        }
        if (epoch <= node->persisted_epoch)
            cn_sim_group_complain(group, "the epoch did not grow", epoch);
        node->persisted_epoch = epoch;
        if (node->disk_full)
            cn_membership_unable(node->membership, group->now_ms);
    }
    while (node->membership &&
           cn_membership_next(node->membership, group->now_ms, &to, bytes, &size))
        post(group, index, to, bytes, size);
    if (node->membership)
        take_view(group, index);
    if (node->membership && node->in_view)
        train(group, index);
}

void cn_sim_group_run(struct cn_sim_group *group, uint64_t duration_ms)
{
    for (uint64_t end_ms = group->now_ms + duration_ms; group->now_ms < end_ms;) {
        group->now_ms += CN_SIM_TICK_MS;
        deliver(group);
        for (uint32_t i = 0; i < group->count; i++)
            run_node(group, i);
    }
}

// Returns whether all members of the set share one open view of exactly that set.
bool cn_sim_group_agree(const struct cn_sim_group *group, uint32_t members)
{
    uint64_t epoch = 0;

    for (uint32_t i = 0; i < group->count; i++) {
        const struct cn_sim_node *node = &group->nodes[i];

        if (!((members >> i) & 1))
            continue;
        if (!node->membership || !node->ring_open ||
            node->view.view.size != (uint32_t)__builtin_popcount(members) ||
            (epoch && node->view.view.epoch != epoch))
            return false;
        epoch = node->view.view.epoch;
    }
    return true;
}
