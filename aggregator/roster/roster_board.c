// What follows from the record of one board, or of one group, alone.
#include "aggregator/roster/roster.h"

bool cn_roster_is_registered(const struct cn_roster_board *board)
{
    return board->facts.cpu_count > 0 && !board->enrolled.revoked;
}

uint64_t cn_roster_sign_ms(const struct cn_roster_board *board)
{
    uint64_t sign_ms = board->heard_ms > board->seen_ms ? board->heard_ms : board->seen_ms;
    return sign_ms > board->health.told_ms ? sign_ms : board->health.told_ms;
}

static uint64_t smaller(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

bool cn_roster_meets(const struct cn_roster_board *board, const struct cn_rule *rule,
                     const char *data_set, uint64_t now_ms)
{
    const struct cn_roster_facts *facts = &board->facts;
    const struct cn_health *said = &board->health.said;
    bool fresh = cn_board_health_is_fresh(&board->health, now_ms);
    uint64_t gpu = facts->gpu;
    const struct cn_rule_facts known = {
        .name = board->enrolled.name,
        .address = "",
        .phase = "",
        .data_set = data_set,
        .samples = fresh ? said->samples : 0,
        .board = {.memory_mib = (uint32_t)(facts->memory >> 20),
                  .cores = (uint16_t)smaller(facts->cpu_count, UINT16_MAX),
                  .arch = (uint16_t)(gpu == CN_GPU_NONE ? 0 : gpu),
                  .battery = (uint8_t)(fresh ? smaller(said->battery, 100) : 0),
                  .left_kib = (uint32_t)(fresh ? said->left_kib : 0)},
    };
    // A board of an earlier release has not told its GPU, so it meets no rule about it.
    return (gpu || !cn_rule_needs_gpu(rule)) && cn_rule_holds(rule, &known);
}

bool cn_roster_may_invite(const struct cn_roster_group *group)
{
    return !group->drained && !group->away && !group->rests && !group->unfit;
}
