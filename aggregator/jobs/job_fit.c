#include "aggregator/jobs/job_fit.h"

#include <stdio.h>
#include <string.h>

static bool meets(const struct cn_rule *rule, const struct cn_roster_board *board)
{
    const struct cn_roster_facts *facts = &board->facts;
    const struct cn_rule_facts known = {
        .name = board->enrolled.name,
        .address = "",
        .phase = "",
        .board = {.memory_mib = (uint32_t)(facts->memory >> 20),
                  .cores =
                      (uint16_t)(facts->cpu_count < UINT16_MAX ? facts->cpu_count : UINT16_MAX)},
    };
    return cn_rule_holds(rule, &known);
}

// Says whether a board has a data set. One that told of none may have it.
static bool has_data(const char *names, const char *wanted)
{
    size_t length = strlen(wanted);
    for (const char *at = names; length && *names; at++) {
        at = strstr(at, wanted);
        if (!at)
            return false;
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    }
    return true;
}

// Says whether a board could not train the job a short while ago.
static bool has_failed(const struct cn_job_need *need, const char *name)
{
    const struct cn_roster_board *board = cn_roster_find(need->tried, name);
    return board && board->facts.settings != CN_ROSTER_ELSEWHERE && board->fault.told_ms &&
           !board->fault.in_doubt && need->now_ms - board->fault.told_ms < CN_JOB_RETRY_MS;
}

bool cn_job_fit(const struct cn_job_need *need, const char *group, char why[CN_JOB_REASON])
{
    size_t count, known = 0, failed = 0, all = 0;
    const struct cn_roster_board *boards = cn_roster_boards(need->boards, &count);
    why[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *name = boards[i].enrolled.name;
        if (boards[i].enrolled.revoked || strcmp(boards[i].enrolled.group, group) != 0)
            continue;
        all++;
        if (has_failed(need, name)) {
            failed++;
            snprintf(why, CN_JOB_REASON, "%s: %.120s", name,
                     cn_roster_find(need->tried, name)->fault.text);
        }
        if (!cn_roster_is_registered(&boards[i]))
            continue;
        known++;
        if (need->rule->count && !meets(need->rule, &boards[i])) {
            snprintf(why, CN_JOB_REASON, "%s does not meet '%.100s'", name, need->text);
            return false;
        }
        if (!has_data(boards[i].facts.data_sets, need->data_set)) {
            snprintf(why, CN_JOB_REASON, "%s has no data set %s", name, need->data_set);
            return false;
        }
    }
    if (failed < all && (known || !need->rule->count))
        why[0] = '\0';
    return all && failed < all && (known || !need->rule->count);
}
