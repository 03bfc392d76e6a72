#include "runtime/round/node/node_health.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/name.h"
#include "runtime/base/random.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/node_private.h"

#define SHORTEST_MS 5000
#define LONGEST_MS 60000
#define SPREAD_MS 24000 // around LONGEST_MS: 20 % below it to 20 % above it
#define REST_MS 1000    // between two looks at the rules of the sets that train

static enum cn_health_state state_of(const struct cn_status_file *status, const char *fault)
{
    static const enum cn_health_state states[] = {
        [CN_PHASE_EMPTY] = CN_HEALTH_WAITING,
        [CN_PHASE_BASE] = CN_HEALTH_IDLE,
        [CN_PHASE_TRAIN] = CN_HEALTH_TRAINING,
        [CN_PHASE_SEND] = CN_HEALTH_DELIVERING,
    };

    if (fault[0])
        return CN_HEALTH_FAILED;
    if (status->care->care.pause)
        return CN_HEALTH_PAUSED;
    return status->progress.size && !cn_progress_waits(&status->progress)
               ? states[status->progress.phase]
               : CN_HEALTH_WAITING;
}

static uint64_t limited(double value)
{
    return value > 0 ? value < (double)UINT32_MAX ? (uint64_t)value : UINT32_MAX : 0;
}

// Says which part of the model the board holds, where that is cut.
static void take_chain(struct cn_health *health, const struct cn_chain_progress *chain)
{
    if (!chain->parts)
        return;
    health->part = chain->part + 1;
    health->parts = chain->parts;
    health->chain = chain->chain + 1;
    health->chains = chain->chains;
    health->bubble = limited(chain->bubble_measured * 1000);
}

static void take_reading(struct cn_health *health, const struct cn_upkeep *care)
{
    const struct cn_reading *reading = &care->reading;

    if (reading->has_temperature)
        health->temperature_mk = limited((double)reading->temperature_mc + CN_HEALTH_ZERO_CELSIUS);
    if (reading->has_power)
        health->power_mw = limited((double)reading->power_mw);
    health->flags = (reading->throttled ? CN_HEALTH_THROTTLED : 0) |
                    (reading->on_battery ? CN_HEALTH_BATTERY : 0) |
                    (uint64_t)care->care.pause << CN_HEALTH_PAUSE_SHIFT;
}

void cn_node_health_take(struct cn_node_health *health, const struct cn_status_file *status,
                         const char *fault, cn_err code)
{
    const struct cn_progress *progress = &status->progress;

    health->newest = (struct cn_health){
        .state = state_of(status, fault),
        .round = progress->round,
        .step = progress->step,
        .steps = progress->steps,
        .centisamples = limited(progress->samples_per_s * 100),
        .error_code = fault[0] ? (uint64_t) - (int)code : 0,
        .samples = fault[0] ? 0 : limited((double)progress->samples),
        .samples_run = (uint32_t)progress->run,
        .seq = health->told.seq + 1,
    };
    snprintf(health->newest.error, sizeof(health->newest.error), "%s", fault);
    take_reading(&health->newest, status->care);
}

// Says whether the same members are missing.
static bool miss_alike(const struct cn_health *a, const struct cn_health *b)
{
    if (a->missing_count != b->missing_count)
        return false;
    for (uint32_t i = 0; i < a->missing_count; i++)
        if (a->missing[i].id != b->missing[i].id ||
            !a->missing[i].missing_s != !b->missing[i].missing_s)
            return false;
    return true;
}

// Says whether people should learn of the difference soon.
static bool differs(const struct cn_health *a, const struct cn_health *b)
{
    return a->flags != b->flags || strcmp(a->error, b->error) != 0 || !miss_alike(a, b) ||
           (a->state == CN_HEALTH_WAITING) != (b->state == CN_HEALTH_WAITING) ||
           (a->samples == 0) != (b->samples == 0) || a->samples_run != b->samples_run ||
           a->part != b->part || a->parts != b->parts || a->chain != b->chain;
}

bool cn_node_health_due(struct cn_node_health *health, uint64_t salt, uint64_t now_ms)
{
    uint64_t age_ms = now_ms - health->told_ms;
    bool news = health->registered || differs(&health->newest, &health->told);
    uint32_t drawn[4];

    if (health->told_ms && age_ms < health->wait_ms && (age_ms < SHORTEST_MS || !news))
        return false;
    health->registered = false;
    cn_random_block(salt, health->newest.seq, 0, drawn);
    health->wait_ms = LONGEST_MS - SPREAD_MS / 2 + drawn[0] % SPREAD_MS;
    health->told_ms = now_ms;
    health->told = health->newest;
    return true;
}

cn_err cn_node_fault_code(const struct cn_node_owner *node)
{
    cn_err disk = (cn_err)atomic_load(&node->disk);

    return disk ? disk : atomic_load(&node->given_up) ? CN_EDIVERGED : CN_EINVAL;
}

// Judges whether this board rests, and logs when that changes.
static void judge_rest(struct cn_node_owner *node, uint64_t now_ms)
{
    const struct cn_settings *settings = node->config.settings;
    struct cn_board_facts facts = cn_session_board_facts(settings, node->config.capability);
    uint64_t before = node->rest.flag & CN_HEALTH_RESTS;

    if (node->rest_ms && now_ms - node->rest_ms < REST_MS)
        return;
    node->rest_ms = now_ms;
    facts.battery = (uint8_t)atomic_load(&node->live.battery);
    facts.left_kib = atomic_load(&node->live.left_kib);
    cn_node_rest_judge(&node->manifest.job, settings, &facts, node->status.progress.round,
                       &node->rest);
    if ((node->rest.flag & CN_HEALTH_RESTS) != before)
        cn_log(CN_LOG_INFO, "sets",
               before ? "this board may train again%s" : "this board rests: %s", node->rest.text);
}

// Returns whether the last report said that this member is missing.
static bool was_missing(const struct cn_health *told, uint32_t id)
{
    for (uint32_t i = 0; i < told->missing_count; i++)
        if (told->missing[i].id == id)
            return told->missing[i].missing_s > 0;
    return false;
}

// Tells which members a board that waits for them misses, as many as a report has room for, and
// which of them are back.
static void take_missing(struct cn_node_owner *node, uint64_t now_ms)
{
    const struct cn_node_health *health = &node->health;
    const struct cn_group_settings *group = &node->config.settings->group;
    struct cn_health *newest = &node->health.newest;
    uint32_t silent_s[CN_GROUP_MAX];
    bool needs = newest->flags & CN_HEALTH_NEEDS;
    bool is_short = strlen(newest->rest) <= CN_HEALTH_TEXT_SHORT &&
                    strlen(newest->error) <= CN_HEALTH_TEXT_SHORT;
    uint32_t most = is_short ? CN_HEALTH_MISSING_MAX : CN_HEALTH_MISSING_LEAST;

    if (!node->group.membership || (!needs && !health->told.missing_count))
        return;
    cn_membership_silence(node->group.membership, now_ms, silent_s);
    for (uint32_t m = 0; m < group->member_count && newest->missing_count < most; m++) {
        uint32_t id = cn_name_hash(group->members[m].name);

        if ((needs && silent_s[m]) || (!silent_s[m] && was_missing(&health->told, id)))
            newest->missing[newest->missing_count++] = (struct cn_member_sign){id, silent_s[m]};
    }
}

// Says what a board waits for that cannot train without missing members.
static void take_needs(struct cn_node_owner *node, uint64_t now_ms)
{
    struct cn_health *newest = &node->health.newest;
    const char *needs = node->status.progress.needs;

    if (needs[0] && !node->fault[0] && !newest->rest[0]) {
        newest->flags |= CN_HEALTH_NEEDS;
        memcpy(newest->rest, needs, sizeof(newest->rest));
    }
    take_missing(node, now_ms);
}

// Says whether the gateway has not heard that the board rests, or does so no longer.
static bool rest_changed(const struct cn_node_owner *node)
{
    return (node->health.told.flags ^ node->rest.flag) & CN_HEALTH_OUT;
}

void cn_node_poll_health(struct cn_node_owner *node, uint64_t now_ms)
{
    struct cn_node_health *health = &node->health;
    struct cn_platform_usage usage;

    if (!node->registered || node->remembered || node->down || node->status.progress.ended)
        return;
    judge_rest(node, now_ms);
    if (!rest_changed(node) &&
        cn_traffic_is_scarce(&node->traffic, &node->limits, cn_upkeep_day_ms()))
        return;
    cn_node_health_take(health, &node->status, node->fault, cn_node_fault_code(node));
    health->newest.flags |= node->rest.flag;
    health->newest.battery = atomic_load(&node->live.battery);
    health->newest.left_kib = atomic_load(&node->live.left_kib);
    if (!node->fault[0])
        memcpy(health->newest.rest, node->rest.text, sizeof(health->newest.rest));
    take_needs(node, now_ms);
    if (!node->fault[0] && !health->newest.rest[0] && node->working)
        take_chain(&health->newest, &node->status.progress.chain);
    if (!cn_node_health_due(health, node->instance, now_ms))
        return;
    cn_platform_read_usage(&usage);
    health->newest.resident_mib = limited((double)usage.resident / (1 << 20));
    node->link->ops->tell(node->link, &health->newest);
}
