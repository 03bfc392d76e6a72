#include "aggregator/daemon/job_set_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"

#define LIVE_MS 120000 // a group heard within this time is live
#define MOVES_MS 10000 // in this time a group changes its job at most MOVES_MOST times
#define MOVES_MOST 40
#define START_MS 10000 // after the start, all groups count as live: they had no time to come back

static int compare_lease(const void *group, const void *lease)
{
    return strcmp(group, ((const struct cn_job_lease *)lease)->group);
}

static struct cn_job_lease *find_lease(const struct cn_job_set *set, const char *group)
{
    return set->lease_count
               ? bsearch(group, set->leases, set->lease_count, sizeof(*set->leases), compare_lease)
               : NULL;
}

// Finds the job whose open round waits for a group that no lease knows; else it is the first. An
// asynchronous round waits for all groups.
static cn_err find_holder(const struct cn_job_set *set, const char *group, uint32_t *holder)
{
    *holder = 0;
    for (uint32_t i = 1; i < set->count; i++) {
        enum cn_run_use use = CN_RUN_UNUSED;
        if (!set->slots[i].run)
            continue;
        cn_err err = cn_run_use_of(set->slots[i].run->run, group, &use);
        if (err)
            return err;
        if (use == CN_RUN_AWAITED)
            *holder = i;
    }
    return CN_OK;
}

// Makes the leases those of the groups of the gateway's roster.
static cn_err follow_groups(struct cn_job_set *set)
{
    size_t count;
    const struct cn_roster_group *groups = cn_roster_groups(set->shared.roster, &count);
    struct cn_job_lease *leases = calloc(count + 1, sizeof(*leases));
    cn_err err = leases ? CN_OK : CN_ENOMEM;
    for (size_t i = 0; i < count && !err; i++) {
        const struct cn_job_lease *before = find_lease(set, groups[i].name);
        memcpy(leases[i].group, groups[i].name, CN_NAME_SIZE);
        if (before)
            leases[i] = *before;
        else
            err = find_holder(set, groups[i].name, &leases[i].holder);
    }
    if (err) {
        free(leases);
        return err;
    }
    free(set->leases);
    set->leases = leases;
    set->lease_count = count;
    return CN_OK;
}

struct cn_resources *cn_job_set_serving(void *context, const char *group)
{
    const struct cn_job_set *set = context;
    const struct cn_job_lease *lease = find_lease(set, group);
    struct cn_job_slot *slot = &set->slots[lease ? lease->holder : 0];
    slot->requests++;
    return slot->resources;
}

bool cn_job_set_awaits(const struct cn_job_set *set, const char *group)
{
    const struct cn_job_lease *lease = find_lease(set, group);
    enum cn_run_use use = CN_RUN_UNUSED;
    if (!lease || !lease->holder)
        return false;
    cn_err err = cn_run_use_of(set->slots[lease->holder].run->run, group, &use);
    return err || use == CN_RUN_AWAITED;
}

// --- the schedule ---

// Says what a group is to the round of a job. Asks the ledger only where that decides.
static cn_err find_use(const struct cn_job_set *set, uint32_t job, const char *group,
                       uint32_t holder, enum cn_run_use *use)
{
    const struct cn_job_slot *slot = &set->slots[job];
    *use = CN_RUN_UNUSED;
    if (job != holder && !slot->state.overdue)
        return CN_OK;
    return cn_run_use_of(slot->run->run, group, use);
}

// Fills in which groups a job can have, and which of its own it waits for.
static cn_err fill_job(struct cn_job_set *set, uint32_t job, struct cn_job_fit *fits,
                       struct cn_schedule_group *plan, uint64_t now_ms)
{
    size_t count;
    struct cn_job_slot *slot = &set->slots[job];
    const struct cn_roster_group *groups = cn_roster_groups(set->shared.roster, &count);
    const struct cn_job_need need = {
        .rule = &slot->rule,
        .text = slot->row.needs,
        .data_set = slot->run->setup.job.data_set,
        .boards = set->shared.roster,
        .tried = slot->roster,
        .now_ms = now_ms,
    };
    cn_job_fit(&need, fits, slot->unfit);
    for (size_t g = 0; g < count; g++) {
        enum cn_run_use use;
        if (!fits[g].fits)
            continue;
        cn_err err = find_use(set, job, groups[g].name, plan[g].holder, &use);
        if (err)
            return err;
        plan[g].busy |= job == plan[g].holder && use == CN_RUN_AWAITED;
        if (!(slot->state.overdue && use == CN_RUN_DONE))
            plan[g].fits |= 1ull << job;
    }
    return CN_OK;
}

static cn_err fill_jobs(struct cn_job_set *set, struct cn_schedule_group *plan, uint64_t now_ms)
{
    struct cn_job_fit *fits = calloc(set->lease_count + 1, sizeof(*fits));
    cn_err err = fits ? CN_OK : CN_ENOMEM;
    for (uint32_t i = 0; i < set->count && !err; i++)
        if (set->slots[i].run)
            err = fill_job(set, i, fits, plan, now_ms);
    free(fits);
    return err;
}

// Notes the job of a group in the rosters of all jobs.
static void lend(struct cn_job_set *set, const struct cn_roster_group *group, uint32_t holder)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (set->slots[i].run)
            cn_roster_lend(set->slots[i].roster, group->name, i != holder || group->drained,
                           group->heard_ms);
}

// A group whose boards say now this and now that about what they can train moves no more often than
// this. Each move is told to all boards that watch.
static bool may_move(struct cn_job_lease *lease, uint64_t now_ms)
{
    if (now_ms - lease->moves_ms >= MOVES_MS) {
        lease->moves_ms = now_ms;
        lease->moves = 0;
    }
    return lease->moves < MOVES_MOST;
}

// Ends that a job comes before all others. If the ledger cannot be written, the next plan tries it.
static void end_ahead(const struct cn_job_set *set, struct cn_job_slot *slot)
{
    if (!cn_jobs_set_ahead(set->slots[0].run->setup.ledger, slot->row.name, false))
        slot->row.ahead = false;
}

// Gives each group to the job that claimed it, if no job waits for its update.
static void apply(struct cn_job_set *set, const struct cn_schedule_group *plan, uint64_t now_ms)
{
    size_t count;
    uint32_t holds[CN_SCHEDULE_JOBS] = {0};
    bool moved = false;
    const struct cn_roster_group *groups = cn_roster_groups(set->shared.roster, &count);
    for (size_t g = 0; g < count; g++) {
        struct cn_job_lease *lease = &set->leases[g];
        bool moves = !plan[g].busy && plan[g].claimed != CN_SCHEDULE_NONE &&
                     plan[g].claimed != lease->holder && may_move(lease, now_ms);
        if (moves) {
            cn_log(CN_LOG_DEBUG, "jobs", "group %s goes from job %s to job %s", lease->group,
                   set->slots[lease->holder].row.name, set->slots[plan[g].claimed].row.name);
            lease->holder = plan[g].claimed;
            lease->moves++;
        }
        moved |= moves;
        holds[lease->holder]++;
        lend(set, &groups[g], lease->holder);
    }
    for (uint32_t i = 0; i < set->count; i++)
        if (cn_job_slot_follow(&set->slots[i], holds[i], now_ms) && set->slots[i].row.ahead)
            end_ahead(set, &set->slots[i]);
    if (moved && set->shared.changed)
        set->shared.changed(set->shared.context);
}

static cn_err plan_groups(struct cn_job_set *set, struct cn_schedule_group *plan, uint64_t now_ms)
{
    size_t count;
    struct cn_schedule_job jobs[CN_SCHEDULE_JOBS];
    const struct cn_roster_group *groups = cn_roster_groups(set->shared.roster, &count);
    for (size_t i = 0; i < set->count; i++) {
        cn_job_slot_plan(&set->slots[i], now_ms);
        jobs[i] = set->slots[i].plan;
    }
    for (size_t g = 0; g < count; g++) {
        bool heard = groups[g].heard_ms && now_ms - groups[g].heard_ms <= LIVE_MS;
        plan[g] = (struct cn_schedule_group){
            .live = !groups[g].drained && (heard || now_ms - set->started_ms < START_MS),
            .heard = heard,
            .holder = set->leases[g].holder,
        };
    }
    cn_err err = fill_jobs(set, plan, now_ms);
    if (!err)
        err = cn_schedule(jobs, set->count, plan, count);
    for (size_t i = 0; i < set->count && !err; i++)
        set->slots[i].plan = jobs[i];
    return err;
}

// Jobs that take turns wait for each other all the time; that is no news.
static enum cn_log_level level_of(enum cn_schedule_wait wait)
{
    if (wait == CN_WAIT_FEW)
        return CN_LOG_WARN;
    return wait == CN_WAIT_SILENT ? CN_LOG_INFO : CN_LOG_DEBUG;
}

// Logs when a job begins to wait for something else.
static void tell_waits(struct cn_job_set *set, uint64_t now_ms)
{
    for (size_t i = 0; i < set->count; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        char text[CN_JOB_TEXT];
        bool waits = slot->plan.wait != CN_WAIT_NONE && slot->plan.wait != CN_WAIT_IDLE;
        text[0] = '\0';
        if (waits)
            cn_job_slot_describe(slot, text);
        if (strncmp(text, slot->told, sizeof(slot->told) - 1) == 0)
            continue;
        snprintf(slot->told, sizeof(slot->told), "%.*s", CN_JOB_REASON - 1, text);
        if (text[0])
            cn_log_within(&slot->lines, now_ms, level_of(slot->plan.wait), "jobs", "job %s %s",
                          slot->row.name, text);
    }
}

cn_err cn_job_set_plan(struct cn_job_set *set, uint64_t now_ms)
{
    cn_err err = follow_groups(set);
    if (err)
        return err;
    struct cn_schedule_group *plan = calloc(set->lease_count + 1, sizeof(*plan));
    if (!plan)
        return CN_ENOMEM;
    err = plan_groups(set, plan, now_ms);
    if (!err) {
        apply(set, plan, now_ms);
        tell_waits(set, now_ms);
    }
    free(plan);
    return err;
}
