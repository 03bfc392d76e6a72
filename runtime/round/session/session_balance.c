// session_balance.c - decides how many micro-batches of a step each member trains.
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/ranks.h"
#include "runtime/round/session/session_private.h"

static bool balances(const struct cn_session *session)
{
    return session->planning.sets && session->config.job->parallel.balance;
}

void cn_session_record_micro(struct cn_session *session)
{
    if (!balances(session))
        return;
    memset(session->held.micro, 0, sizeof(session->held.micro));
    for (uint32_t p = 0; p < session->plan.train.size; p++)
        session->held.micro[session->plan.seats[p]] = (uint16_t)session->planning.micro[p];
}

// Fills in this board's own micro-batches from the division of a step.
static void take_part(struct cn_session *session)
{
    struct cn_step_plan *plan = &session->plan;

    plan->micro = plan->trains ? session->planning.micro[plan->place] : 0;
    plan->before = plan->trains ? cn_ranks_first(session->planning.micro, plan->place) : 0;
}

// Uses the division of the held state if it is for these members, so that a repeated step has the
// same result.
static bool take_recorded(struct cn_session *session, uint32_t total)
{
    const struct cn_step_plan *plan = &session->plan;
    uint32_t own = 0, all = 0;

    for (uint32_t p = 0; p < plan->train.size; p++) {
        session->planning.micro[p] = session->held.micro[plan->seats[p]];
        own += session->planning.micro[p];
    }
    for (uint32_t s = 0; s < CN_GROUP_MAX; s++)
        all += session->held.micro[s];
    return own == total && all == total;
}

void cn_session_split_micro_batches(struct cn_session *session)
{
    uint32_t each = cn_session_accumulates(session), total = each * session->plan.train.size;

    session->planning.balance = (struct cn_balance){0};
    session->plan.total = total;
    if (!balances(session) || !take_recorded(session, total))
        for (uint32_t p = 0; p < session->plan.train.size; p++)
            session->planning.micro[p] = each;
    take_part(session);
    if (session->plan.shards == 1)
        cn_session_record_micro(session);
}

static void tell(const struct cn_session *session)
{
    const struct cn_group_settings *group = &session->config.settings->group;
    char text[256];
    size_t length = 0;

    for (uint32_t p = 0; p < session->plan.train.size && length < sizeof(text); p++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s %u (%.1f ms each)",
                                   p ? ", " : "", group->members[session->plan.seats[p]].name,
                                   session->planning.micro[p], session->planning.balance.ms[p]);
    cn_log(CN_LOG_INFO, "sets", "round %u, step %u: micro-batches of a step: %s",
           session->held.round, cn_session_position(session), text);
}

void cn_session_balance(struct cn_session *session, const float *computed_ms)
{
    uint32_t count = session->plan.train.size;
    double ms[CN_GROUP_MAX];

    if (!balances(session))
        return;
    for (uint32_t p = 0; p < count; p++)
        ms[p] = (double)computed_ms[session->plan.train.ranks[p]];
    cn_balance_add(&session->planning.balance, session->planning.micro, ms, count);
    if (!cn_balance_divide(&session->planning.balance, count, session->planning.micro))
        return;
    take_part(session);
    if (session->plan.shards == 1 && session->plan.trains)
        cn_session_record_micro(session);
    tell(session);
}
