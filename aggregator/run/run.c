#include "aggregator/run/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/asynchronous.h"
#include "aggregator/run/run_private.h"
#include "aggregator/run/selection.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define SETTINGS_MS 500 // time between two looks for other settings
#define INVITE_MS 500   // least time between two looks for more groups

static uint32_t newest_version(const struct cn_run *run)
{
    return cn_model_store_newest(run->config.models)->number;
}

static void notify(struct cn_run *run)
{
    if (run->config.changed)
        run->config.changed(run->config.context);
}

static void add_bytes(struct cn_link_bytes *sum, const struct cn_link_bytes *more)
{
    sum->payload += more->payload;
    sum->messages += more->messages;
    sum->wire += more->wire;
}

void cn_run_read_traffic(const struct cn_run *run, struct cn_run_traffic *traffic)
{
    *traffic = (struct cn_run_traffic){0};
    if (run->config.traffic)
        run->config.traffic(run->config.context, traffic);
    add_bytes(&traffic->in, &run->base.in);
    add_bytes(&traffic->out, &run->base.out);
}

// Returns the number of groups to invite: over_select for each one of the quorum.
static uint32_t wanted_groups(const struct cn_job *job)
{
    if (cn_job_is_async(job))
        return cn_job_updates_needed(job);
    double wanted = ceil(job->over_select * cn_job_updates_needed(job));
    return wanted < cn_job_updates_needed(job) ? cn_job_updates_needed(job) : (uint32_t)wanted;
}

// Returns the number of groups that are of use to the run now. An asynchronous one uses all.
static uint32_t useful_groups(const struct cn_run *run)
{
    if (cn_job_is_async(run->config.job))
        return UINT32_MAX;
    return run->phase == CN_RUN_OPEN ? run->wanted : wanted_groups(run->config.job);
}

// --- settings ---

cn_err cn_run_load_settings(struct cn_run *run, uint32_t round, bool open)
{
    struct cn_live_job *live = run->config.live;

    if (!live)
        return CN_OK;
    uint32_t before = live->number;
    cn_err err = cn_live_job_follow(live, round, open);
    if (!err && live->number != before)
        notify(run);
    return err;
}

// Takes the settings of the present round. Only values that decide when a round ends may change
// while it is open, and those by which the members of a group share its work.
static cn_err follow_settings(struct cn_run *run, uint64_t now_ms)
{
    uint64_t deadline_ms = run->config.job->deadline_ms;
    cn_err err = cn_run_load_settings(run, run->round, run->phase == CN_RUN_OPEN);
    if (err || run->phase != CN_RUN_OPEN)
        return err;
    if (run->wanted < wanted_groups(run->config.job))
        run->wanted = wanted_groups(run->config.job);
    if (run->config.job->deadline_ms != deadline_ms)
        run->deadline_ms = now_ms + run->config.job->deadline_ms;
    return CN_OK;
}

// --- opening ---

static cn_err begin_open(struct cn_run *run, uint64_t now_ms)
{
    run->opened_ms = 0;
    run->phase = CN_RUN_OPEN;
    run->overdue = false;
    run->deadline_ms = now_ms + run->config.job->deadline_ms;
    run->wanted = wanted_groups(run->config.job);
    run->waiting = (struct cn_waiting){0};
    run->begun_ms = now_ms;
    run->invite_ms = 0;
    cn_err err = cn_run_open_control(run);
    if (err)
        return err;
    return cn_ledger_count(run->config.ledger, run->round, &run->selected, &run->accepted);
}

// Marks the groups that rounds.select leaves out.
static void mark_unfit(struct cn_run *run, uint64_t now_ms)
{
    struct cn_rule rule;
    char reason[CN_DIAG_LINE_SIZE];
    const char *text = run->config.job->select;

    if (!text[0] && !run->selects)
        return;
    run->selects = text[0] && !cn_rule_parse(text, reason, &rule);
    cn_roster_mark_unfit(run->config.roster, run->selects ? &rule : NULL, run->config.job->data_set,
                         now_ms);
}

// Invites live groups until the wanted number is reached.
static cn_err invite(struct cn_run *run, uint64_t now_ms)
{
    mark_unfit(run, now_ms);
    if (cn_job_is_async(run->config.job))
        return cn_async_follow(run, false);
    if (run->selected >= run->wanted || now_ms < run->invite_ms)
        return CN_OK;
    run->invite_ms = now_ms + INVITE_MS;
    struct cn_selection selection = {
        .ledger = run->config.ledger,
        .roster = run->config.roster,
        .seed = run->config.job->seed,
        .round = run->round,
        .now_ms = now_ms,
        .live_ms = run->config.live_ms,
    };
    uint32_t invited = 0;
    cn_err err = cn_selection_invite(&selection, run->wanted - run->selected, &invited);
    run->selected += invited;
    if (invited)
        notify(run);
    return err;
}

// Returns the number of groups that are invited to the round under way.
static uint32_t count_invited(const struct cn_run *run)
{
    bool takes = run->phase == CN_RUN_OPEN || run->phase == CN_RUN_CLOSING;

    return takes && cn_job_is_async(run->config.job) ? cn_async_invited(run) : run->selected;
}

static cn_err open_round(struct cn_run *run, uint64_t now_ms)
{
    cn_err err = cn_ledger_open_round(run->config.ledger, run->round);

    // A reload writes settings for rounds that are not open. So these are the round's from here on.
    if (!err)
        err = cn_run_load_settings(run, run->round, false);
    if (!err)
        err = begin_open(run, now_ms);
    run->opened_ms = now_ms;
    if (!err)
        err = invite(run, now_ms);
    if (!err && cn_job_is_async(run->config.job))
        notify(run); // the round invites all groups
    if (!err)
        cn_log(CN_LOG_DEBUG, "run", "round %u is open, %u group%s invited", run->round,
               count_invited(run), count_invited(run) == 1 ? " is" : "s are");
    return err;
}

static void tell_waiting(struct cn_run *run, uint32_t live, uint64_t now_ms)
{
    const struct cn_waiting_round round = {
        .roster = run->config.roster,
        .round = run->round,
        .needed = cn_job_updates_needed(run->config.job),
        .live = live,
        .now_ms = now_ms,
        .live_ms = run->config.live_ms,
    };
    cn_waiting_tell(&run->waiting, &round);
}

static cn_err tick_gather(struct cn_run *run, uint64_t now_ms)
{
    if (!cn_run_opens_rounds(run)) {
        run->quorum_seen_ms = 0;
        return CN_OK;
    }
    mark_unfit(run, now_ms);
    uint32_t expected =
        cn_selection_expected(run->config.roster, run->begun_ms, run->config.live_ms);
    uint32_t live = cn_selection_live(run->config.roster, now_ms, run->config.live_ms);
    if (live < cn_job_updates_needed(run->config.job)) {
        run->quorum_seen_ms = 0;
        tell_waiting(run, live, now_ms);
        return CN_OK;
    }
    if (run->quorum_seen_ms == 0)
        run->quorum_seen_ms = now_ms;
    bool all = live >= wanted_groups(run->config.job) || live >= expected;
    if (!all && now_ms - run->quorum_seen_ms < run->config.settle_ms)
        return CN_OK;
    return open_round(run, now_ms);
}

// --- open ---

// Drops the uploads that cannot count any more.
static void expire_uploads(struct cn_run *run, uint64_t now_ms)
{
    bool open = run->phase == CN_RUN_OPEN;

    if (cn_job_is_async(run->config.job))
        cn_spool_expire(run->config.spool, cn_async_oldest(run), run->round, run->now_ms);
    else
        cn_spool_expire(run->config.spool, open ? run->round : 0, open ? run->round : 0, now_ms);
}

void cn_run_enter_closing(struct cn_run *run)
{
    run->phase = CN_RUN_CLOSING;
    run->retry_ms = 0;
    expire_uploads(run, 0);
    notify(run);
}

static cn_err begin_closing(struct cn_run *run)
{
    cn_err err = cn_ledger_close_round(run->config.ledger, run->round);

    if (!err)
        cn_run_enter_closing(run);
    return err;
}

static void extend(struct cn_run *run, uint64_t now_ms)
{
    const struct cn_job *job = run->config.job;

    cn_log(CN_LOG_WARN, "run",
           "round %u has %u of %u updates at its deadline: extended by %" PRIu64 " s", run->round,
           run->accepted, cn_job_updates_needed(job), job->deadline_ms / 1000);
    if (run->accepted == 0 && !run->overdue)
        cn_log(CN_LOG_WARN, "run",
               "no group has trained round %u: `status` names boards with faults; if its values "
               "are the cause, correct the job's `parallel` and `reload`, or give the round up "
               "with `rollback`",
               run->round);
    run->counts.extended++;
    run->overdue = true;
    run->deadline_ms = now_ms + job->deadline_ms;
    run->wanted = run->selected + (cn_job_updates_needed(job) - run->accepted);
    notify(run);
}

static cn_err tick_open(struct cn_run *run, uint64_t now_ms)
{
    bool full = run->accepted >= cn_job_updates_needed(run->config.job);
    if (cn_run_is_held(run, now_ms))
        return CN_OK;
    cn_err err = cn_job_is_async(run->config.job) ? cn_async_is_full(run, &full) : CN_OK;
    if (err || full)
        return err ? err : begin_closing(run);
    if (now_ms >= run->deadline_ms)
        extend(run, now_ms);
    expire_uploads(run, now_ms);
    return invite(run, now_ms);
}

// --- closing ---

static void end(struct cn_run *run, const char *reason)
{
    run->phase = CN_RUN_ENDED;
    run->end_reason = reason;
    notify(run);
}

// Goes on to the round after the newest version. Sets *reason if the settings of that round end the
// run; otherwise it is NULL.
static cn_err begin_next(struct cn_run *run, const char **reason)
{
    uint32_t first = run->round > 2 ? run->round - 2 : 0;
    cn_err err = cn_score_progress(run->config.ledger, run->config.job, first, &run->progress);

    *reason = NULL;
    if (err)
        return err;
    run->round = newest_version(run) + 1;
    run->selected = run->accepted = 0;
    run->quorum_seen_ms = 0;
    err = cn_run_load_settings(run, run->round, false);
    if (!err && cn_job_is_async(run->config.job))
        err = cn_async_advance(run);
    if (!err)
        *reason = cn_score_end(run->config.job, &run->progress, newest_version(run));
    return err;
}

// Call after a version was made: begins the next round or ends the run. A rollback that waits is
// carried out before the run would end, and may keep it from ending.
static cn_err advance(struct cn_run *run)
{
    const char *reason;
    bool moved = true;

    run->phase = CN_RUN_MEASURE; // after an error it is tried again from there
    cn_err err = begin_next(run, &reason);
    while (!err && reason && moved) {
        err = cn_run_roll_back(run, &moved);
        if (!err && moved)
            err = begin_next(run, &reason);
    }
    if (err)
        return err;
    err = cn_model_store_prune(run->config.models, run->progress.best_score.known
                                                       ? run->progress.best
                                                       : run->progress.candidate);
    if (err)
        cn_log(CN_LOG_WARN, "run", "old files are still there: %s", cn_err_text(err));
    if (reason) {
        end(run, reason);
    } else {
        run->phase = CN_RUN_GATHER;
        notify(run);
    }
    return CN_OK;
}

static cn_err tick_closing(struct cn_run *run, uint64_t now_ms)
{
    bool made;
    cn_err err = cn_run_make_version(run, now_ms, &made);

    if (err || !made)
        return err;
    if (!run->config.measure)
        return advance(run);
    run->phase = CN_RUN_MEASURE;
    return CN_OK;
}

// --- measuring ---

// The next round waits for the result if the result may end the run.
static bool result_decides(const struct cn_run *run)
{
    const struct cn_job *job = run->config.job;

    // Groups of an asynchronous run continue meanwhile, so the run may make one more version.
    return newest_version(run) >= job->rounds || (!cn_job_is_async(job) && cn_job_may_stop(job));
}

cn_err cn_run_store_result(struct cn_run *run, uint64_t now_ms, bool *idle)
{
    const struct cn_run_measure *measure = run->config.measure;
    struct cn_ledger_metrics metrics;

    *idle = true;
    if (!measure)
        return CN_OK;
    uint32_t version;
    cn_err err = measure->poll(measure->context, now_ms, &version, &metrics);
    *idle = err != CN_EAGAIN;
    run->measuring = !*idle;
    if (!err)
        cn_histogram_add(&run->counts.evaluation, (double)(now_ms - run->measure_ms) / 1e3);
    if (err == CN_EDIVERGED)
        cn_run_watch_loss(run, version, NULL);
    if (err)
        return CN_OK; // no result yet, or the evaluator has logged the error
    cn_run_watch_loss(run, version, &metrics);
    err = cn_ledger_set_central(run->config.ledger, version, &metrics);
    if (err) {
        cn_log(CN_LOG_ERROR, "run", "the measurement of version %u is lost: %s", version,
               cn_err_text(err));
        return CN_OK;
    }
    return cn_score_progress(run->config.ledger, run->config.job, version, &run->progress);
}

// Starts the evaluation of the newest version, once, if it has no result. Sets *started when the
// evaluation runs.
static cn_err measure_newest(struct cn_run *run, uint64_t now_ms, bool *started)
{
    const struct cn_run_measure *measure = run->config.measure;
    const struct cn_model *newest = cn_model_store_newest(run->config.models);
    struct cn_ledger_version version;

    *started = false;
    if (!measure || (run->measured_any && run->measured == newest->number))
        return CN_OK;
    cn_err err = cn_ledger_find_version(run->config.ledger, newest->number, &version);
    if (err || version.central.count)
        return err;
    run->measured_any = true;
    run->measured = newest->number;
    run->measure_ms = now_ms;
    *started =
        measure->start(measure->context, newest->number, cn_model_weights(newest), now_ms) == CN_OK;
    run->measuring |= *started;
    return CN_OK;
}

static cn_err tick_measure(struct cn_run *run, uint64_t now_ms)
{
    bool idle, started;
    cn_err err = cn_run_store_result(run, now_ms, &idle);

    if (err || !idle)
        return err;
    // The settings of the next round may decide whether the result can end the run.
    err = cn_run_load_settings(run, newest_version(run) + 1, false);
    if (!err)
        err = measure_newest(run, now_ms, &started);
    if (err || (started && result_decides(run)))
        return err;
    return advance(run);
}

// --- opening, closing, ticking ---

static cn_err recover(struct cn_run *run, uint64_t now_ms)
{
    struct cn_ledger_round round = {0};
    cn_err err = cn_ledger_newest_round(run->config.ledger, &round);

    if (err && err != CN_ENOTFOUND)
        return err;
    bool under_way = !err && round.state != CN_LEDGER_MERGED;
    run->round = under_way ? round.number : newest_version(run) + 1;
    err = cn_run_load_settings(run, run->round, false);
    if (err)
        return err;
    if (under_way && round.state == CN_LEDGER_CLOSING) {
        run->phase = CN_RUN_CLOSING;
        return cn_ledger_count(run->config.ledger, run->round, &run->selected, &run->accepted);
    }
    const char *reason = cn_score_end(run->config.job, &run->progress, newest_version(run));
    if (under_way && !reason) {
        bool started;
        err = begin_open(run, now_ms);
        if (!err)
            err = cn_run_recover_deadline(run);
        return err ? err : measure_newest(run, now_ms, &started);
    }
    run->phase = run->config.measure ? CN_RUN_MEASURE : CN_RUN_GATHER;
    return run->config.measure ? CN_OK : advance(run);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

cn_err cn_run_open(const struct cn_run_config *config, uint64_t now_ms, struct cn_run **run)
{
    *run = NULL;
    struct cn_run *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    opened->now_ms = now_ms;
    opened->counts.round.bounds = opened->counts.merge.bounds = cn_histogram_work;
    opened->counts.evaluation.bounds = opened->counts.commit.bounds = cn_histogram_work;
    struct cn_ledger_version newest;
    cn_err err = cn_ledger_newest_version(config->ledger, &newest);
    if (!err) {
        opened->base = config->earlier;
        opened->base.in.messages = larger(newest.bytes_in, config->earlier.in.messages);
        opened->base.out.messages = larger(newest.bytes_out, config->earlier.out.messages);
        err = cn_score_progress(config->ledger, config->job, 0, &opened->progress);
    }
    opened->rolled_back = opened->progress.rolled_back;
    if (!err)
        err = cn_ruling_refused(config->ledger, NULL, &opened->refused);
    if (!err)
        err = cn_run_follow_steering(opened);
    if (!err)
        err = recover(opened, now_ms);
    if (err) {
        cn_run_close(opened);
        return err;
    }
    *run = opened;
    return CN_OK;
}

void cn_run_close(struct cn_run *run)
{
    if (run)
        cn_model_deinit(&run->candidate);
    free(run);
}

// Looks for settings and for a rollback that a command wrote into the ledger, not more often than
// each SETTINGS_MS. Sets *moved when the newest version is another one now, or the run is over.
static cn_err follow_ledger(struct cn_run *run, uint64_t now_ms, bool *moved)
{
    *moved = false;
    if (now_ms < run->settings_ms)
        return CN_OK;
    run->settings_ms = now_ms + SETTINGS_MS;
    cn_err err = follow_settings(run, now_ms);
    if (!err)
        err = cn_run_roll_back(run, moved);
    if (err || *moved)
        return err ? err : advance(run);
    if (run->phase == CN_RUN_GATHER &&
        cn_score_end(run->config.job, &run->progress, newest_version(run))) {
        run->phase = CN_RUN_MEASURE; // ends the run when the newest version is measured
        *moved = true;
    }
    return CN_OK;
}

cn_err cn_run_tick(struct cn_run *run, uint64_t now_ms)
{
    bool idle, moved;
    cn_err err;

    run->now_ms = now_ms;
    switch (run->phase) {
    case CN_RUN_GATHER:
        err = follow_ledger(run, now_ms, &moved);
        if (!err && !moved)
            err = cn_run_store_result(run, now_ms, &idle);
        return err || moved ? err : tick_gather(run, now_ms);
    case CN_RUN_OPEN:
        err = follow_ledger(run, now_ms, &moved);
        if (!err && !moved)
            err = cn_run_store_result(run, now_ms, &idle);
        return err || moved ? err : tick_open(run, now_ms);
    case CN_RUN_CLOSING:
        return tick_closing(run, now_ms);
    case CN_RUN_MEASURE:
        return tick_measure(run, now_ms);
    default:
        return CN_OK;
    }
}

void cn_run_get_state(const struct cn_run *run, uint64_t now_ms, struct cn_run_state *state)
{
    *state = (struct cn_run_state){
        .phase = run->phase,
        .round = run->round,
        .selected = count_invited(run),
        .accepted = run->accepted,
        .wanted = useful_groups(run),
        .overdue = run->phase == CN_RUN_OPEN && run->overdue,
        .cuts = run->cuts,
        .trouble = run->trouble,
        .measuring = run->measuring,
        .oldest = cn_async_oldest(run),
        .end_reason = run->end_reason,
        .progress = run->progress,
        .steering = run->steering,
    };
    memcpy(state->warning, run->warning, sizeof(state->warning));
    if (run->phase == CN_RUN_OPEN && run->deadline_ms > now_ms)
        state->remaining_ms = run->deadline_ms - now_ms;
    uint64_t opens_ms = run->quorum_seen_ms + run->config.settle_ms;
    if (run->phase == CN_RUN_GATHER && run->quorum_seen_ms && opens_ms > now_ms)
        state->settling_ms = opens_ms - now_ms;
    cn_run_read_traffic(run, &state->traffic);
}

const struct cn_run_counts *cn_run_count(const struct cn_run *run)
{
    return &run->counts;
}
