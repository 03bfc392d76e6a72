#include "aggregator/run/waiting.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"

#define FIRST_MS 60000
#define LONGEST_MS 3600000
#define NAMED 8 // boards in a line
#define LINE_SIZE (NAMED * (CN_NAME_SIZE + 2) + 64)

// Says whether all groups are busy with other jobs.
static bool serves_others(const struct cn_roster *roster)
{
    size_t count, away = 0;
    const struct cn_roster_group *groups = cn_roster_groups(roster, &count);
    for (size_t i = 0; i < count; i++) {
        if (cn_roster_may_invite(&groups[i]))
            return false;
        away += groups[i].away;
    }
    return away > 0;
}

static bool is_missed(const struct cn_waiting_round *round, size_t place)
{
    const struct cn_roster_board *board = cn_roster_newest(round->roster, place);
    const struct cn_roster_group *group =
        cn_roster_find_group(round->roster, board->enrolled.group);
    bool here = board->heard_ms && round->now_ms - board->heard_ms <= round->live_ms;
    return !here && !board->enrolled.revoked && group && !group->drained && !group->away;
}

// Writes "; not here: a, b, and 3 more".
static void name_missed(const struct cn_waiting_round *round, char line[LINE_SIZE])
{
    size_t count, missed = 0, used = 0;
    const struct cn_roster_board *boards = cn_roster_boards(round->roster, &count);
    line[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (is_missed(round, i) && missed++ < NAMED)
            used += (size_t)snprintf(line + used, LINE_SIZE - used, "%s%s",
                                     used ? ", " : "; not here: ", boards[i].enrolled.name);
    if (missed > NAMED)
        snprintf(line + used, LINE_SIZE - used, ", and %zu more", missed - NAMED);
}

// Writes "; drained: a", or how many are.
static void name_drained(const struct cn_roster *roster, char line[CN_NAME_SIZE + 32])
{
    size_t count, drained = 0;
    const struct cn_roster_group *groups = cn_roster_groups(roster, &count);
    const char *name = "";
    for (size_t i = 0; i < count; i++)
        if (groups[i].drained && drained++ == 0)
            name = groups[i].name;
    line[0] = '\0';
    if (drained == 1)
        snprintf(line, CN_NAME_SIZE + 32, "; drained: %s", name);
    else if (drained)
        snprintf(line, CN_NAME_SIZE + 32, "; %zu are drained", drained);
}

void cn_waiting_tell(struct cn_waiting *waiting, const struct cn_waiting_round *round)
{
    char missed[LINE_SIZE] = "", drained[CN_NAME_SIZE + 32];
    size_t groups;
    if ((waiting->pause_ms && round->now_ms < waiting->next_ms) || serves_others(round->roster))
        return;
    cn_roster_groups(round->roster, &groups);
    if (waiting->pause_ms)
        name_missed(round, missed);
    name_drained(round->roster, drained);
    cn_log(CN_LOG_INFO, "run", "round %u waits for %u group%s; %zu %s enrolled, %u %s here%s%s",
           round->round, round->needed, round->needed == 1 ? "" : "s", groups,
           groups == 1 ? "is" : "are", round->live, round->live == 1 ? "is" : "are", drained,
           missed);
    waiting->pause_ms = waiting->pause_ms ? 2 * waiting->pause_ms : FIRST_MS;
    if (waiting->pause_ms > LONGEST_MS)
        waiting->pause_ms = LONGEST_MS;
    waiting->next_ms = round->now_ms + waiting->pause_ms;
}
