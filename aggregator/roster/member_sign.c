#include "aggregator/roster/member_sign.h"

#include <string.h>

#define REPORTS_MS 150000 // two reports of a board that lives come sooner

const struct cn_member_sign *cn_sign_of(const struct cn_roster_board *board, const char *group,
                                        const struct cn_member_sign *members, uint32_t count)
{
    uint32_t id = cn_name_hash(board->enrolled.name);
    if (board->enrolled.revoked || strcmp(board->enrolled.group, group) != 0)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].id == id)
            return &members[i];
    return NULL;
}

bool cn_sign_counts(const struct cn_roster_board *board, const struct cn_member_sign *sign,
                    uint64_t now_ms)
{
    const struct cn_board_health *health = &board->health;
    uint64_t silent_ms = 1000ull * sign->missing_s;
    uint64_t age_ms = now_ms - health->told_ms;
    bool later = health->told_ms && age_ms < silent_ms && age_ms < REPORTS_MS;
    bool works = later && (health->said.state == CN_HEALTH_TRAINING ||
                           health->said.state == CN_HEALTH_DELIVERING);
    return sign->missing_s ? !works : board->missing_ms != 0;
}

void cn_sign_take(struct cn_roster_board *board, const struct cn_member_sign *sign,
                  const char *member, bool present, struct cn_log_quota *quota, uint64_t now_ms)
{
    const char *name = board->enrolled.name, *group = board->enrolled.group;
    uint64_t silent_ms = 1000ull * sign->missing_s;
    if (sign->missing_s && !board->missing_ms && quota)
        cn_log_within(quota, now_ms, CN_LOG_WARN, "roster",
                      "%s of group %s is missing since %u s, says %s", name, group, sign->missing_s,
                      member);
    else if (!sign->missing_s && board->missing_ms && quota)
        cn_log_within(quota, now_ms, CN_LOG_INFO, "roster", "%s is back in group %s, says %s", name,
                      group, member);
    if (!sign->missing_s && present)
        board->seen_ms = now_ms;
    board->missing_ms = !sign->missing_s ? 0 : silent_ms < now_ms ? now_ms - silent_ms : 1;
}
