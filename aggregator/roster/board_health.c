#include "aggregator/roster/board_health.h"

#include <string.h>

#include "runtime/round/upkeep/pause_rules.h"

bool cn_board_health_note(struct cn_board_health *health, const struct cn_health *said,
                          uint64_t run, uint64_t now_ms)
{
    uint64_t samples = health->said.samples;
    char cleaned[CN_FAULT_SIZE];

    if (health->told_ms && now_ms - health->told_ms < CN_HEALTH_SHORTEST_MS)
        return false;
    health->told_ms = now_ms ? now_ms : 1;
    health->said = *said;
    if (said->samples_run && said->samples_run != (uint32_t)run)
        health->said.samples = samples;
    cn_fault_clean(cleaned, said->error); // makes no text longer
    memcpy(health->said.error, cleaned, strlen(cleaned) + 1);
    cn_fault_clean(cleaned, said->rest);
    memcpy(health->said.rest, cleaned, strlen(cleaned) + 1);
    return true;
}

bool cn_board_health_is_fresh(const struct cn_board_health *health, uint64_t now_ms)
{
    return health->told_ms &&
           (health->told_ms >= now_ms || now_ms - health->told_ms <= CN_HEALTH_FRESH_MS);
}

unsigned cn_board_health_pause(const struct cn_board_health *health)
{
    unsigned pause = (unsigned)(health->said.flags >> CN_HEALTH_PAUSE_SHIFT) & CN_HEALTH_PAUSE_MASK;

    return pause <= CN_PAUSE_UPDATE ? pause : CN_PAUSE_NONE;
}

const char *cn_board_health_word(const struct cn_board_health *health)
{
    static const char *const words[CN_HEALTH_STATES] = {
        [CN_HEALTH_WAITING] = "waiting",   [CN_HEALTH_IDLE] = "idle",
        [CN_HEALTH_TRAINING] = "training", [CN_HEALTH_DELIVERING] = "delivering",
        [CN_HEALTH_PAUSED] = "paused",     [CN_HEALTH_FAILED] = "failed",
    };

    return health->said.state < CN_HEALTH_STATES ? words[health->said.state] : "unknown";
}

const char *cn_board_health_pause_word(const struct cn_board_health *health)
{
    return cn_pause_word((enum cn_pause)cn_board_health_pause(health));
}

const char *cn_board_health_pause_text(const struct cn_board_health *health)
{
    return cn_pause_text((enum cn_pause)cn_board_health_pause(health));
}
