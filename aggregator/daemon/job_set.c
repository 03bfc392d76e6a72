#include "aggregator/daemon/job_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/daemon/job_bytes.h"
#include "aggregator/daemon/job_events.h"
#include "aggregator/daemon/job_list.h"
#include "aggregator/daemon/job_look.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/daemon/job_set_plan.h"
#include "aggregator/serve/status.h"
#include "runtime/base/log.h"

#define PLAN_MS 200    // time between two schedules
#define WRITE_MS 1000  // between two writes of the jobs' status files
#define RETRY_MS 10000 // between two attempts to open a run
#define IDLE_MS 30000  // time without use after which a run may be closed for another
#define OPEN_MOST 8    // runs that are open, each with its model in memory

// --- opening ---

cn_err cn_job_set_open(struct cn_job_set *set, const struct cn_job_run_shared *shared,
                       struct cn_job_run *first, struct cn_resources *resources, const char *state,
                       bool restored)
{
    *set = (struct cn_job_set){.shared = *shared, .state = state, .restored = restored};
    set->slots = calloc(CN_SCHEDULE_JOBS, sizeof(*set->slots));
    set->look_faults = calloc(1, sizeof(*set->look_faults));
    if (!set->slots || !set->look_faults) {
        cn_job_set_close(set);
        return CN_ENOMEM;
    }
    struct cn_job_slot *slot = &set->slots[set->count++];
    slot->row = (struct cn_queued_job){.priority = CN_JOB_PRIORITY, .turn = CN_JOB_TURN};
    memcpy(slot->row.name, first->setup.job.name, sizeof(slot->row.name));
    slot->run = first;
    slot->roster = shared->roster;
    slot->resources = resources;
    cn_job_slot_begin(slot, 0);
    set->started_ms = cn_platform_now_ms();
    return CN_OK;
}

void cn_job_set_close(struct cn_job_set *set)
{
    for (size_t i = 1; i < set->count; i++)
        cn_job_opening_close(&set->slots[i]);
    free(set->slots);
    free(set->look_faults);
    free(set->leases);
    *set = (struct cn_job_set){0};
}

static struct cn_ledger *ledger_of(const struct cn_job_set *set)
{
    return set->slots[0].run->setup.ledger;
}

// --- rows ---

static struct cn_job_slot *find_slot(const struct cn_job_set *set, const char *name)
{
    for (size_t i = 1; i < set->count; i++)
        if (strcmp(set->slots[i].row.name, name) == 0)
            return &set->slots[i];
    return NULL;
}

const struct cn_job_slot *cn_job_set_find(const struct cn_job_set *set, const char *name)
{
    return strcmp(set->slots[0].row.name, name) == 0 ? &set->slots[0] : find_slot(set, name);
}

// Returns a place for a job: a new one, or that of a job that is over.
static struct cn_job_slot *find_place(struct cn_job_set *set)
{
    if (set->count < CN_SCHEDULE_JOBS)
        return &set->slots[set->count++];
    for (size_t i = 1; i < set->count; i++)
        if (cn_job_is_over(set->slots[i].row.state) && !set->slots[i].run)
            return &set->slots[i];
    return NULL;
}

// Takes a row. A job that is over and has no slot gets none.
static cn_err take_row(void *context, const struct cn_queued_job *row)
{
    struct cn_job_set *set = context;
    struct cn_job_slot *slot = find_slot(set, row->name);
    char why[CN_DIAG_LINE_SIZE];
    if (slot) {
        slot->row = *row;
        return CN_OK;
    }
    bool over = cn_job_is_over(row->state);
    set->earlier += over;
    slot = over ? NULL : find_place(set);
    if (!slot)
        return CN_OK;
    set->earlier += slot->row.name[0] != '\0'; // a job that is over loses its slot to this one
    *slot = (struct cn_job_slot){.row = *row};
    if (row->needs[0] && cn_rule_parse(row->needs, why, &slot->rule))
        cn_log(CN_LOG_ERROR, "jobs", "%s: needs: %s", row->name, why); // submit has checked it
    cn_log(CN_LOG_INFO, "jobs", "job %s is in the queue with priority %u", row->name,
           row->priority);
    return CN_OK;
}

static cn_err mirror_boards(struct cn_job_set *set, struct cn_job_slot *slot)
{
    bool changed;
    cn_err err = cn_ledger_mirror_boards(slot->run->setup.ledger, ledger_of(set), &changed);
    if (!err && changed)
        cn_roster_expire(slot->roster);
    return err ? err : cn_roster_refresh(slot->roster, NULL, NULL);
}

cn_err cn_job_set_refresh(struct cn_job_set *set)
{
    int64_t generation;
    cn_err err = cn_ledger_generation(ledger_of(set), &generation);
    if (err || (set->has_read && generation == set->generation))
        return err;
    set->earlier = 0;
    err = cn_jobs_list(ledger_of(set), take_row, set);
    for (size_t i = 1; i < set->count; i++) {
        cn_err failed = set->slots[i].run ? mirror_boards(set, &set->slots[i]) : CN_OK;
        err = err ? err : failed; // the others follow all the same
    }
    if (err)
        return err;
    set->generation = generation;
    set->has_read = true;
    return CN_OK;
}

// --- runs ---

static double least_share(const struct cn_job_set *set, const struct cn_job_slot *slot)
{
    double least = 0;
    bool any = false;
    for (size_t i = 0; i < set->count; i++) {
        const struct cn_job_slot *other = &set->slots[i];
        if (other == slot || !other->plan.runs || other->row.priority != slot->row.priority)
            continue;
        if (!any || other->plan.share < least)
            least = other->plan.share;
        any = true;
    }
    return least;
}

static uint32_t count_open(const struct cn_job_set *set)
{
    uint32_t open = 0;
    for (size_t i = 0; i < set->count; i++)
        open += set->slots[i].run != NULL;
    return open;
}

static void end(struct cn_job_set *set, struct cn_job_slot *slot, enum cn_job_state state,
                const char *reason)
{
    cn_err err = cn_jobs_set_state(ledger_of(set), slot->row.name, state, reason);
    if (err) {
        cn_log_within(&slot->lines, cn_platform_now_ms(), CN_LOG_ERROR, "jobs",
                      "the end of job %s is not recorded yet: %s", slot->row.name,
                      cn_err_text(err));
        return;
    }
    set->has_read = false; // another job may have its place
    slot->row.state = state;
    slot->row.ahead = false;
    snprintf(slot->row.reason, sizeof(slot->row.reason), "%s", reason);
    cn_log(state == CN_JOB_FAILED ? CN_LOG_ERROR : CN_LOG_INFO, "jobs", "job %s has %s: %s",
           slot->row.name, cn_job_state_name(state), reason);
    char how[CN_JOB_TEXT];
    cn_job_slot_describe(slot, how);
    if (set->ended)
        set->ended(set->ended_context, slot->row.name, how);
}

static void open_slot(struct cn_job_set *set, struct cn_job_slot *slot, uint64_t now_ms)
{
    char why[CN_JOB_REASON] = "its run cannot be opened; the gateway's log says why";
    slot->tried_ms = now_ms;
    cn_err err = cn_job_opening_open(slot, &set->shared, set->slots[0].resources, set->state,
                                     set->restored, why);
    if (!err)
        err = mirror_boards(set, slot);
    if (!err) {
        cn_run_get_state(slot->run->run, now_ms, &slot->state);
        slot->opened_ms = now_ms;
        cn_job_slot_begin(slot, least_share(set, slot));
        cn_log(CN_LOG_INFO, "jobs", "job %s is open: version %u of %u", slot->row.name,
               cn_model_store_newest(slot->run->models)->number, slot->run->setup.job.rounds);
        return;
    }
    cn_job_opening_close(slot);
    if (err == CN_EAGAIN || err == CN_ENOSPC || err == CN_EIO || err == CN_ENOMEM)
        cn_log_within(&slot->lines, now_ms, CN_LOG_ERROR, "jobs",
                      "job %s cannot be opened now: %s; trying every %d s", slot->row.name,
                      cn_err_text(err), RETRY_MS / 1000);
    else
        end(set, slot, CN_JOB_FAILED, why);
}

static void close_slot(struct cn_job_slot *slot, uint64_t now_ms)
{
    cn_job_events_last(slot, now_ms);
    cn_job_opening_close(slot);
}

// Gives back the groups of jobs whose runs are closed.
static void give_back(struct cn_job_set *set)
{
    for (size_t i = 0; i < set->lease_count; i++)
        if (!set->slots[set->leases[i].holder].run)
            set->leases[i].holder = 0;
}

// Says whether an open run may make room for another: it is over, or has been without groups and a
// round for a while, because it cannot have what it needs.
static bool is_idle(const struct cn_job_slot *slot, uint64_t now_ms)
{
    enum cn_schedule_wait wait = slot->plan.wait;
    bool stuck = wait == CN_WAIT_FEW || wait == CN_WAIT_SILENT || wait == CN_WAIT_IDLE;
    if (slot->row.state == CN_JOB_ENDED)
        return true;
    return stuck && !slot->holds && now_ms - slot->opened_ms >= IDLE_MS &&
           slot->state.phase != CN_RUN_OPEN && slot->state.phase != CN_RUN_CLOSING;
}

// Closes the run with the lowest priority that is idle, if as many are open as may be. Returns
// whether another one may be opened.
static bool make_room(struct cn_job_set *set, uint64_t now_ms)
{
    struct cn_job_slot *idle = NULL;
    if (count_open(set) < OPEN_MOST)
        return true;
    for (size_t i = 1; i < set->count; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        if (slot->run && is_idle(slot, now_ms) &&
            (!idle || slot->row.priority < idle->row.priority))
            idle = slot;
    }
    if (!idle)
        return false;
    close_slot(idle, now_ms);
    idle->tried_ms = now_ms;
    give_back(set);
    return true;
}

// Says whether the run of a job is to be opened now.
static bool is_due(const struct cn_job_slot *slot, uint64_t now_ms)
{
    return !slot->run && !cn_job_is_over(slot->row.state) &&
           (!slot->tried_ms || now_ms - slot->tried_ms >= RETRY_MS);
}

// Opens and closes the run of a job, by its state.
static void follow_state(struct cn_job_set *set, struct cn_job_slot *slot, uint64_t now_ms)
{
    bool over = cn_job_is_over(slot->row.state);
    if (is_due(slot, now_ms) && make_room(set, now_ms))
        open_slot(set, slot, now_ms);
    // A job that ended is served until others want its groups, so that its boards learn of the end.
    // One that a person stopped, or that failed, gives them back to the first.
    else if (slot->run && over && (slot->row.state != CN_JOB_ENDED || !slot->holds))
        close_slot(slot, now_ms);
}

static void tick_slot(struct cn_job_set *set, struct cn_job_slot *slot, uint64_t now_ms)
{
    cn_err err = cn_job_run_tick(slot->run, now_ms);
    cn_run_get_state(slot->run->run, now_ms, &slot->state);
    if (err)
        end(set, slot, CN_JOB_FAILED, cn_err_text(err));
    else if (slot->state.phase == CN_RUN_ENDED && !cn_job_is_over(slot->row.state))
        end(set, slot, CN_JOB_ENDED, slot->state.end_reason);
}

// --- stepping ---

// Lets people look at a job as at any run: by the files in its state directory.
static void write_status(struct cn_job_set *set, uint64_t now_ms)
{
    if (now_ms - set->written_ms < WRITE_MS)
        return;
    set->written_ms = now_ms;
    for (size_t i = 1; i < set->count; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        if (slot->run &&
            cn_status_write(slot->run->setup.settings->state, slot->roster, &slot->state, now_ms))
            cn_log(CN_LOG_DEBUG, "jobs", "the status of job %s is not written", slot->row.name);
    }
    if (cn_job_list_write(set))
        cn_log(CN_LOG_DEBUG, "jobs", "the list of jobs is not written");
}

// Says whether a round has ended since the newest plan: its run would open the next one with groups
// that other jobs may have.
static bool has_freed(const struct cn_job_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->slots[i].run && set->slots[i].planned == CN_RUN_OPEN &&
            set->slots[i].state.phase != CN_RUN_OPEN)
            return true;
    return false;
}

// Plans take at most a tenth of the time.
static void plan(struct cn_job_set *set, uint64_t now_ms)
{
    cn_err err = set->count > 1 ? cn_job_set_plan(set, now_ms) : CN_OK;
    uint64_t took_ms = cn_platform_now_ms() - now_ms;
    set->plan_ms = now_ms + (10 * took_ms > PLAN_MS ? 10 * took_ms : PLAN_MS);
    if (err)
        cn_log_within(&set->lines, now_ms, CN_LOG_ERROR, "jobs",
                      "which job each group serves is not decided: %s", cn_err_text(err));
    for (size_t i = 0; i < set->count; i++)
        set->slots[i].planned = set->slots[i].state.phase;
}

void cn_job_set_step(struct cn_job_set *set, const struct cn_run_state *first,
                     const struct cn_coap_server *server, uint64_t now_ms)
{
    cn_job_bytes_divide(set, server);
    set->slots[0].state = *first;
    if (set->count == 1) {
        size_t groups;
        cn_roster_groups(set->shared.roster, &groups);
        set->slots[0].holds = (uint32_t)groups; // all of them serve the only job
        write_status(set, now_ms);              // else the file would still list earlier jobs
        return;
    }
    for (size_t i = 1; i < set->count; i++)
        follow_state(set, &set->slots[i], now_ms);
    give_back(set);
    if (now_ms >= set->plan_ms || has_freed(set))
        plan(set, now_ms);
    for (size_t i = 1; i < set->count; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        if (!slot->run)
            continue;
        cn_run_hold(slot->run->run, slot->row.state != CN_JOB_ACTIVE || first->steering.leaving);
        tick_slot(set, slot, now_ms);
    }
    write_status(set, now_ms);
}

enum cn_replan cn_job_set_replan(void *context)
{
    struct cn_job_set *set = context;
    uint64_t now_ms = cn_platform_now_ms();
    if (set->count == 1)
        return CN_REPLAN_DONE;   // all groups serve the only job
    if (now_ms < set->replan_ms) // boards that fail all the time do not keep the gateway busy
        return CN_REPLAN_LATER;
    plan(set, now_ms);
    uint64_t ended_ms = cn_platform_now_ms(), took_ms = ended_ms - now_ms;
    set->replan_ms = ended_ms + 4 * (took_ms ? took_ms : 1);
    for (size_t i = 1; i < set->count; i++)
        if (is_due(&set->slots[i], now_ms))
            return CN_REPLAN_OPENING;
    return CN_REPLAN_DONE;
}

bool cn_job_set_is_over(const struct cn_job_set *set)
{
    for (size_t i = 1; i < set->count; i++)
        if (!cn_job_is_over(set->slots[i].row.state))
            return false;
    return true;
}

bool cn_job_set_is_idle(const struct cn_job_set *set)
{
    for (size_t i = 1; i < set->count; i++)
        if (set->slots[i].run && (set->slots[i].state.phase == CN_RUN_OPEN ||
                                  set->slots[i].state.phase == CN_RUN_CLOSING))
            return false;
    return true;
}
