#include "aggregator/merge/downlink.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/update/rate.h"
#include "runtime/update/update.h"

#define SHARE 10           // a version may take one of so many equal parts of the deadline
#define BUDGET_MOST 0x1p60 // bytes; a board may say anything of its link

static const struct cn_update_rule ladder[] = {
    {CN_UPDATE_Q8, 0, 0},      {CN_UPDATE_Q4, 0, 0},      {CN_UPDATE_TOPK, 0.25, 2},
    {CN_UPDATE_TOPK, 0.1, 2},  {CN_UPDATE_TOPK, 0.05, 2}, {CN_UPDATE_TOPK, 0.02, 2},
    {CN_UPDATE_TOPK, 0.01, 2},
};

#define STEPS (sizeof(ladder) / sizeof(ladder[0]))

static bool is_same(const struct cn_update_rule *a, const struct cn_update_rule *b)
{
    return a->mode == b->mode && a->value_bits == b->value_bits &&
           fabs(a->density - b->density) < 1e-9;
}

// Returns the step of the ladder with this rule, STEPS if there is none.
static size_t step_of(const struct cn_update_rule *rule)
{
    size_t step = 0;
    while (step < STEPS && !is_same(&ladder[step], rule))
        step++;
    return step;
}

static void find_sizes(const struct cn_layout *layout, uint64_t sizes[STEPS])
{
    struct cn_rate_spectrum spectrum;
    cn_rate_guess(layout, &spectrum);
    for (size_t step = 0; step < STEPS; step++) {
        struct cn_rate_choice choice;
        cn_rate_judge(&spectrum, &ladder[step], &choice);
        sizes[step] = choice.bytes;
    }
}

// Returns the largest encoding within the budget, the smallest one of all if none is.
static size_t fitting(const uint64_t sizes[STEPS], uint64_t budget)
{
    size_t step = 0;
    while (step < STEPS - 1 && sizes[step] > budget)
        step++;
    return step;
}

void cn_downlink_next(const struct cn_layout *layout, const struct cn_job *job,
                      const struct cn_downlink *before, struct cn_downlink *next)
{
    uint64_t sizes[STEPS];
    size_t step = before ? step_of(&before->rule) : STEPS;
    uint32_t roomy = before ? before->roomy : 0;
    bool first = step == STEPS;

    find_sizes(layout, sizes);
    double budget = (double)next->link_bps / 8 * (double)job->deadline_ms / 1000 / SHARE;
    next->budget = budget < BUDGET_MOST ? (uint64_t)budget : (uint64_t)BUDGET_MOST;
    if (first)
        step = roomy = 0;
    if (next->link_bps) {
        size_t most = fitting(sizes, next->budget);
        bool room = step > 0 && (double)sizes[step - 1] <= CN_DOWNLINK_ROOM * (double)next->budget;
        roomy = room ? roomy + 1 : 0;
        if (most > step) {
            step = most;
        } else if (roomy >= CN_DOWNLINK_ROOMY) {
            step--;
            roomy = 0;
        }
    }
    next->rule = ladder[step];
    next->roomy = roomy;
    next->size = sizes[step];
}

void cn_downlink_rule_text(const struct cn_update_rule *rule, char text[CN_DOWNLINK_RULE])
{
    if (rule->mode == CN_UPDATE_TOPK)
        snprintf(text, CN_DOWNLINK_RULE, "topk %g %%", 100 * rule->density);
    else
        snprintf(text, CN_DOWNLINK_RULE, "%s", cn_update_mode_name(rule->mode));
}

void cn_downlink_text(const struct cn_downlink *downlink, uint32_t since,
                      char text[CN_DOWNLINK_TEXT])
{
    char rule[CN_DOWNLINK_RULE];
    cn_downlink_rule_text(&downlink->rule, rule);
    if (!downlink->link_bps)
        snprintf(text, CN_DOWNLINK_TEXT,
                 "versions go down as %s since version %u: no group has measured its link", rule,
                 since);
    else
        snprintf(text, CN_DOWNLINK_TEXT,
                 "versions go down as %s since version %u: %" PRIu64
                 " bytes; the slowest quarter of the links takes %.0f kbit/s, %" PRIu64
                 " bytes in a tenth of the deadline",
                 rule, since, downlink->size, (double)downlink->link_bps / 1000, downlink->budget);
}

cn_err cn_downlink_decide(struct cn_ledger *ledger, const struct cn_layout *layout,
                          const struct cn_job *job, uint32_t version)
{
    struct cn_downlink before, next = {.version = version};
    char text[CN_DOWNLINK_TEXT];
    if (job->down.mode != CN_UPDATE_AUTO)
        return CN_OK;
    cn_err err = cn_downlinks_newest(ledger, &before);
    if (!err && before.version >= version)
        return CN_OK;
    bool known = !err;
    if (err && err != CN_ENOTFOUND)
        return err;
    err = cn_downlinks_goodput(ledger, version, &next.link_bps);
    if (err)
        return err;
    cn_downlink_next(layout, job, known ? &before : NULL, &next);
    err = cn_downlinks_add(ledger, &next);
    if (!err && (!known || !is_same(&before.rule, &next.rule))) {
        cn_downlink_text(&next, version, text);
        cn_log(CN_LOG_INFO, "run", "%s", text);
    }
    return err;
}

cn_err cn_downlink_rule(struct cn_ledger *ledger, const struct cn_job *job, uint32_t version,
                        struct cn_update_rule *rule)
{
    struct cn_downlink found;
    *rule = job->down;
    if (job->down.mode != CN_UPDATE_AUTO)
        return CN_OK;
    cn_err err = cn_downlinks_find(ledger, version, &found);
    *rule = found.rule;
    bool usable = !err && cn_update_rule_is_valid(&found.rule);
    if (usable || (err && err != CN_ENOTFOUND))
        return err;
    cn_log(CN_LOG_ERROR, "merge", "the ledger lacks how version %u goes down", version);
    return CN_EFORMAT;
}
