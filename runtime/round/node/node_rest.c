#include "runtime/round/node/node_rest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/profile/notation/set_rules.h"

static const char *own_address(const struct cn_settings *settings)
{
    for (uint32_t i = 0; i < settings->group.member_count; i++)
        if (strcmp(settings->group.members[i].name, settings->name) == 0)
            return settings->group.members[i].address;
    return "";
}

static void describe(const struct cn_job *job, const struct cn_settings *settings,
                     const struct cn_board_facts *board, const char *set, struct cn_node_rest *rest)
{
    char rule[CN_RULE_SIZE] = "", bytes[48] = "";
    int length;

    cn_set_rules_text(job->parallel.sets, set, rule);
    cn_set_rules_text(settings->group.sets, set, rule);
    if (board->left_kib != UINT32_MAX)
        snprintf(bytes, sizeof(bytes), ", %" PRIu32 " KiB left today", board->left_kib);
    rest->flag = CN_HEALTH_RESTS;
    length = snprintf(rest->text, sizeof(rest->text), "battery %u %%%s; the set %s wants %s",
                      board->battery, bytes, set, rule);
    if (length >= (int)sizeof(rest->text)) // a long rule
        memcpy(rest->text + sizeof(rest->text) - 4, "...", 4);
}

void cn_node_rest_judge(const struct cn_job *job, const struct cn_settings *settings,
                        const struct cn_board_facts *board, uint32_t round,
                        struct cn_node_rest *rest)
{
    struct cn_set_rules rules = {0};
    char reason[CN_DIAG_LINE_SIZE], phase[CN_NAME_SIZE], name[CN_NAME_SIZE];
    *rest = (struct cn_node_rest){0};
    cn_err malformed = cn_set_rules_add(job->parallel.sets, reason, &rules);
    if (!malformed)
        malformed = cn_set_rules_add(settings->group.sets, reason, &rules);
    if (malformed || !job->parallel.train[0])
        return; // the session says what is malformed
    cn_phase_of(job->parallel.phases, round, phase);
    struct cn_rule_facts now = {.name = settings->name,
                                .address = own_address(settings),
                                .board = *board,
                                .round = round,
                                .phase = phase};
    struct cn_rule_facts best = now;
    best.board.battery = 100;
    best.board.left_kib = UINT32_MAX;
    rest->flag = CN_HEALTH_LOOKS_ON;
    for (const char *at = job->parallel.train; (at = cn_set_names_next(at, name));) {
        const struct cn_set_rule *rule = cn_set_rules_find(&rules, name);
        if (rule && cn_set_rule_holds(rule, &now)) {
            *rest = (struct cn_node_rest){0};
            return;
        }
        if (rule && rest->flag != CN_HEALTH_RESTS && cn_set_rule_holds(rule, &best))
            describe(job, settings, board, name, rest);
    }
}
