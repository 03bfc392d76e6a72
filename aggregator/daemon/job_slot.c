#include "aggregator/daemon/job_slot.h"

#include <stdio.h>
#include <string.h>

#define BOOST_MS 3600000 // waiting time that raises the priority by 1

static uint32_t rounds_of(const struct cn_job_slot *slot)
{
    return cn_model_store_newest(slot->run->models)->number;
}

// As rounds_of, with the round whose version is being made: its groups are free already.
static uint32_t rounds_done(const struct cn_job_slot *slot)
{
    return slot->state.phase == CN_RUN_CLOSING ? slot->state.round : rounds_of(slot);
}

static bool is_in_turn(const struct cn_job_slot *slot)
{
    return slot->holds && rounds_done(slot) - slot->turn_from < slot->row.turn;
}

// Says whether the run may have groups: it is not over, and nobody paused it.
static bool may_run(const struct cn_job_slot *slot)
{
    const struct cn_steering *steering = &slot->state.steering;
    return slot->row.state == CN_JOB_ACTIVE && slot->run && slot->state.phase != CN_RUN_ENDED &&
           steering->pause == CN_RUN_PAUSE_NONE && !steering->leaving;
}

void cn_job_slot_plan(struct cn_job_slot *slot, uint64_t now_ms)
{
    struct cn_schedule_job *plan = &slot->plan;
    *plan = (struct cn_schedule_job){.runs = may_run(slot)};
    if (!slot->run)
        return;
    if (slot->waits_ms)
        slot->boost = (uint32_t)((now_ms - slot->waits_ms) / BOOST_MS);
    else if (!is_in_turn(slot))
        slot->boost = 0;
    plan->ahead = slot->row.ahead;
    plan->priority = slot->row.priority + slot->boost;
    if (plan->priority > CN_JOB_PRIORITY_MOST)
        plan->priority = CN_JOB_PRIORITY_MOST;
    plan->in_turn = is_in_turn(slot);
    plan->share = (double)((int64_t)rounds_done(slot) - slot->counts_from) / slot->row.turn;
    plan->needs = cn_job_updates_needed(&slot->run->setup.job);
    plan->wanted = slot->state.wanted;
    if (slot->state.overdue) { // groups that have delivered are of no use to it now
        plan->needs = 1;
        plan->wanted -= slot->state.accepted < plan->wanted ? slot->state.accepted : 0;
    }
}

bool cn_job_slot_follow(struct cn_job_slot *slot, uint32_t holds, uint64_t now_ms)
{
    bool over = slot->run && slot->holds && !is_in_turn(slot);
    // A turn that is over begins again only if the job has the groups by its rank, and no person
    // put it ahead: that holds for one turn.
    bool again = over && slot->plan.wait == CN_WAIT_NONE && !slot->row.ahead;
    bool began = holds && (!slot->holds || again);
    slot->holds = holds;
    if (!slot->run)
        return false;
    if (began)
        slot->turn_from = rounds_done(slot);
    if (holds || !slot->plan.runs)
        slot->waits_ms = 0;
    else if (!slot->waits_ms)
        slot->waits_ms = now_ms;
    return over;
}

void cn_job_slot_begin(struct cn_job_slot *slot, double least_share)
{
    slot->counts_from = (int64_t)rounds_of(slot) - (int64_t)(least_share * slot->row.turn);
}

static void describe_run(const struct cn_job_slot *slot, char text[CN_JOB_TEXT])
{
    uint32_t version = rounds_of(slot), rounds = slot->run->setup.job.rounds;
    snprintf(text, CN_JOB_TEXT, "version %u of %u, %u group%s%s", version, rounds, slot->holds,
             slot->holds == 1 ? "" : "s", slot->state.overdue ? "; the open round is overdue" : "");
}

// Appends why a group does not fit: a job may wait for the others although that one would be free.
static void add_unfit(const struct cn_job_slot *slot, char text[CN_JOB_TEXT])
{
    size_t length = strlen(text);
    if (slot->unfit[0])
        snprintf(text + length, CN_JOB_TEXT - length, "; %s", slot->unfit);
}

bool cn_job_slot_has_ended(const struct cn_job_slot *slot)
{
    return slot->run && slot->state.phase == CN_RUN_ENDED && slot->row.state != CN_JOB_HELD;
}

void cn_job_slot_describe(const struct cn_job_slot *slot, char text[CN_JOB_TEXT])
{
    const struct cn_schedule_job *plan = &slot->plan;
    const char *word = plan->needs == 1 ? "group" : "groups";
    if (cn_job_is_over(slot->row.state)) {
        snprintf(text, CN_JOB_TEXT, "%s: %s", cn_job_state_name(slot->row.state), slot->row.reason);
        return;
    }
    // The profile's job has no row of its own that would say so.
    if (cn_job_slot_has_ended(slot)) {
        snprintf(text, CN_JOB_TEXT, "ended at version %u: %s", rounds_of(slot),
                 slot->state.end_reason);
        return;
    }
    if (!slot->run) {
        snprintf(text, CN_JOB_TEXT, "%s",
                 slot->row.state == CN_JOB_HELD ? "held" : "waits until another job makes room");
        return;
    }
    switch (plan->wait) {
    case CN_WAIT_NONE:
        describe_run(slot, text);
        if (!slot->holds)
            add_unfit(slot, text);
        return;
    case CN_WAIT_IDLE:
        if (slot->row.state == CN_JOB_HELD)
            snprintf(text, CN_JOB_TEXT, "held at version %u", rounds_of(slot));
        else
            snprintf(text, CN_JOB_TEXT, "paused at version %u", rounds_of(slot));
        return;
    case CN_WAIT_FEW:
        snprintf(text, CN_JOB_TEXT, "needs %u %s, %u fit%s%s", plan->needs, word, plan->fit,
                 slot->unfit[0] ? ": " : "", slot->unfit);
        return;
    case CN_WAIT_SILENT:
        snprintf(text, CN_JOB_TEXT, "needs %u %s; of %u that fit, %u were heard lately",
                 plan->needs, word, plan->fit, plan->live);
        add_unfit(slot, text);
        return;
    case CN_WAIT_OTHERS:
        snprintf(text, CN_JOB_TEXT, "waits for groups that other jobs have");
        add_unfit(slot, text);
        return;
    default:
        snprintf(text, CN_JOB_TEXT, "waits for groups that finish a round of another job");
    }
}
