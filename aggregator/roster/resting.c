#include "aggregator/roster/resting.h"

#include <string.h>

// Returns what a board said of resting last: 0 for one that is here and said nothing lately, as an
// older release; LOOKS_ON for one that is away.
static uint64_t flags_of(const struct cn_roster_board *board, uint64_t now_ms)
{
    if (cn_board_health_is_fresh(&board->health, now_ms))
        return board->health.said.flags;
    bool here = board->heard_ms && now_ms - board->heard_ms <= CN_HEALTH_FRESH_MS;
    return here ? 0 : CN_HEALTH_LOOKS_ON;
}

bool cn_resting_judge(const struct cn_roster_board *boards, size_t count, const char *group,
                      uint64_t now_ms, const char **why)
{
    bool rests = false, trains = false;
    *why = "";
    for (size_t i = 0; i < count; i++) {
        if (boards[i].enrolled.revoked || strcmp(boards[i].enrolled.group, group) != 0)
            continue;
        uint64_t flags = flags_of(&boards[i], now_ms);
        if (flags & CN_HEALTH_RESTS)
            *why = boards[i].health.said.rest;
        rests |= (flags & CN_HEALTH_RESTS) != 0;
        trains |= !(flags & CN_HEALTH_OUT);
    }
    if (!rests || trains)
        *why = "";
    return rests && !trains;
}
