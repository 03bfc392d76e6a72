#include "aggregator/run/asynchronous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/staleness.h"
#include "aggregator/merge/caps.h"
#include "runtime/base/log.h"

#define TURN_S 1       // while a version is made, or the group has an update in the open buffer
#define GATHER_S 5     // while the run waits for groups
#define PAUSED_S 30    // while people have paused the run
#define AWAITED_MOST 2 // updates in a row that a version waits for in vain
#define FOLLOW_MS 500  // least time between two looks at what the groups fetched

// Returns the round whose version an update that comes now would go into.
static uint32_t next_round(const struct cn_run *run)
{
    return cn_model_store_newest(run->config.models)->number +
           (run->phase == CN_RUN_CLOSING ? 2 : 1);
}

// An update that began from a version that a rollback gave up does not count.
uint32_t cn_run_oldest_round(const struct cn_job *job, uint32_t next, uint32_t rolled_back)
{
    uint32_t most = cn_job_is_async(job) ? job->async.max_staleness : 0;
    uint32_t oldest = next > most ? next - most : 1;

    return oldest > rolled_back ? oldest : rolled_back + 1;
}

uint32_t cn_async_oldest(const struct cn_run *run)
{
    return cn_run_oldest_round(run->config.job, next_round(run), run->rolled_back);
}

// Says whether a group has an update in the version that is being made.
static cn_err has_part(const struct cn_run *run, const char *group, bool *has)
{
    struct cn_ledger_contribution part;
    cn_err err = cn_ledger_find_part(run->config.ledger, run->round, group, &part);

    *has = err != CN_ENOTFOUND;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

uint32_t cn_async_invited(const struct cn_run *run)
{
    size_t count;
    const struct cn_roster_group *groups = cn_roster_groups(run->config.roster, &count);
    uint32_t invited = 0;

    for (size_t i = 0; i < count; i++) {
        bool has = false, out = !cn_roster_may_invite(&groups[i]);

        if (out && has_part(run, groups[i].name, &has))
            continue; // the ledger cannot be read: the number is only for people
        invited += has || !out;
    }
    return invited > run->accepted ? invited : run->accepted; // groups may be revoked
}

cn_err cn_async_invites(struct cn_run *run, const char *group, bool *invited)
{
    const struct cn_roster_group *found = cn_roster_find_group(run->config.roster, group);
    bool has;
    cn_err err = has_part(run, group, &has);

    *invited = !has && (!found || cn_roster_may_invite(found));
    return err;
}

// --- verdicts ---

static void say_late(struct cn_upload_status *status, const char *text, uint32_t base,
                     uint32_t oldest)
{
    status->decided = true;
    status->verdict = CN_VERDICT_LATE;
    snprintf(status->reason, sizeof(status->reason), text, base, oldest);
}

static void refuse(struct cn_upload_status *status, enum cn_run_refusal why,
                   enum cn_run_refusal *refusal)
{
    *refusal = why;
    status->decided = true;
    status->verdict = CN_VERDICT_REJECTED;
    snprintf(status->reason, sizeof(status->reason), "%s", cn_run_refusal_text(why));
}

// Judges by the newest round that the group delivered already, which is that of its newest outcome.
static cn_err judge_order(struct cn_run *run, const char *group, uint32_t round,
                          struct cn_upload_status *status)
{
    struct cn_ledger_outcome outcome;
    cn_err err = cn_ledger_outcome(run->config.ledger, group, &outcome);

    if (!err && outcome.accepted && outcome.round > round)
        say_late(status, "the group has delivered an update from a later version than %u",
                 round - 1, 0);
    return err;
}

static cn_err judge_base(struct cn_run *run, const struct cn_declare_request *declared,
                         struct cn_upload_status *status, enum cn_run_refusal *refusal)
{
    uint8_t base[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_find_digest(run->config.ledger, declared->round - 1, base);

    if (err && err != CN_ENOTFOUND)
        return err;
    if (err || memcmp(declared->base, base, CN_DIGEST_SIZE) != 0)
        refuse(status, CN_REFUSAL_BASE, refusal);
    return CN_OK;
}

// Returns CN_EBUSY unless the open buffer takes an update of the group now.
static cn_err find_room(struct cn_run *run, const char *group)
{
    bool full = true, has = true;
    cn_err err = run->phase == CN_RUN_OPEN ? cn_async_is_full(run, &full) : CN_OK;

    if (!err && !full)
        err = has_part(run, group, &has);
    return err || !has ? err : CN_EBUSY;
}

cn_err cn_async_judge(struct cn_run *run, const char *group,
                      const struct cn_declare_request *declared, struct cn_upload_status *status,
                      enum cn_run_refusal *refusal)
{
    uint32_t oldest = cn_async_oldest(run);
    cn_err err = CN_OK;

    if (declared->round > run->round ||
        (declared->round == run->round && run->phase == CN_RUN_GATHER))
        refuse(status, CN_REFUSAL_NOT_OPEN, refusal);
    else if (run->phase == CN_RUN_ENDED)
        say_late(status, "the run is over", 0, 0);
    else if (declared->round < oldest)
        say_late(status, "it began from version %u, and the oldest that counts now is %u",
                 declared->round - 1, oldest - 1);
    else
        err = judge_order(run, group, declared->round, status);
    if (!err && !status->decided)
        err = judge_base(run, declared, status, refusal);
    return err || status->decided ? err : find_room(run, group);
}

uint32_t cn_async_later_s(const struct cn_run *run)
{
    if (run->steering.pause != CN_RUN_PAUSE_NONE && run->phase != CN_RUN_CLOSING)
        return PAUSED_S;
    return run->phase == CN_RUN_GATHER ? GATHER_S : TURN_S;
}

// --- what groups train for ---

cn_err cn_async_follow(struct cn_run *run, bool now)
{
    size_t count, found = 0;
    const struct cn_roster_group *groups = cn_roster_groups(run->config.roster, &count);
    uint32_t oldest = cn_async_oldest(run); // a group that fetched only the graph has begun round 1
    struct cn_staleness_begun *begun;

    if (!now && run->now_ms < run->invite_ms)
        return CN_OK;
    run->invite_ms = run->now_ms + FOLLOW_MS;
    begun = calloc(count + 1, sizeof(*begun));
    if (!begun)
        return CN_ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (groups[i].begun > groups[i].recorded && groups[i].begun >= oldest)
            begun[found++] = (struct cn_staleness_begun){groups[i].name, groups[i].begun};
    cn_err err = cn_staleness_begin(run->config.ledger, begun, found);
    if (!err)
        cn_roster_begun_recorded(run->config.roster);
    free(begun);
    return err;
}

// --- the end of a buffer ---

// A group that would be late for the next version.
struct slowest {
    const struct cn_run *run;
    uint32_t round; // newest round of which an update is too old after this version
    bool found;
};

static cn_err look_for_slow(void *context, const char *group, uint32_t round)
{
    struct slowest *slowest = context;
    const struct cn_run_config *config = &slowest->run->config;
    const struct cn_roster_group *found = cn_roster_find_group(config->roster, group);
    uint64_t run_now = slowest->run->now_ms;
    bool live = found && found->heard_ms && run_now < found->heard_ms + config->live_ms;
    struct cn_staleness staleness;

    if (!live || round > slowest->round || round < cn_async_oldest(slowest->run))
        return CN_OK;
    cn_err err = cn_staleness_read(config->ledger, group, &staleness);
    slowest->found |= !err && staleness.late < AWAITED_MOST;
    return err;
}

// Says whether the version waits for a group: a live one that trains for a round that the next
// version would not take. A group that has an update in this version is not waited for. Nor is one
// whose last updates were all too late: it might fetch versions and never send anything.
static cn_err is_awaited(struct cn_run *run, bool *awaited)
{
    uint32_t most = run->config.job->async.max_staleness;
    struct slowest slowest = {run, run->round > most ? run->round - most : 0, false};
    cn_err err = CN_OK;

    if (slowest.round)
        err = cn_staleness_walk(run->config.ledger, look_for_slow, &slowest);
    *awaited = slowest.found;
    return err;
}

// Returns the least number of updates that a version is made of at the deadline. With fewer than
// CN_CAPS_LEAST no medians limit a group that lies, so it could decide versions alone while the
// others are slow.
static uint32_t least_updates(const struct cn_job *job)
{
    bool waits = job->robust.when_short == CN_ROBUST_SHORT_WAIT;
    uint32_t least = waits ? cn_robust_needs(&job->robust) : 1;
    uint32_t capped = job->trust_groups ? 1 : CN_CAPS_LEAST;

    if (capped > cn_job_updates_needed(job))
        capped = cn_job_updates_needed(job);
    return least > capped ? least : capped;
}

cn_err cn_async_is_full(struct cn_run *run, bool *full)
{
    const struct cn_job *job = run->config.job;
    bool over = run->now_ms >= run->deadline_ms, awaited = false;
    cn_err err = CN_OK;

    *full = run->accepted >= (over ? least_updates(job) : cn_job_updates_needed(job));
    if (*full) // now: after the version, the rounds that groups train for may be too old
        err = cn_async_follow(run, true);
    if (!err && *full && !over && job->async.wait)
        err = is_awaited(run, &awaited);
    *full &= !awaited;
    return err;
}

cn_err cn_async_advance(struct cn_run *run)
{
    return cn_staleness_expire(run->config.ledger, cn_async_oldest(run));
}
