#include "aggregator/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/admission.h"
#include "aggregator/merge.h"
#include "aggregator/selection.h"
#include "runtime/base/log.h"

#define RETRY_MS 3000    // after a merge that failed
#define INVITE_MS 500    // between looks for more groups
#define REJECTED_TOLD 20 // updates of a round

struct cn_run {
    struct cn_run_config config;
    enum cn_run_phase phase;
    uint32_t round;          // OPEN, CLOSING: of the ledger; else the next one
    uint32_t accepted;       // contributions to it
    uint32_t rejected;       // updates, since it was opened
    uint32_t selected;       // groups invited to it
    uint32_t wanted;         // groups to invite; grows when a deadline passes
    uint64_t deadline_ms;    // clock; OPEN
    uint64_t quorum_seen_ms; // clock; when GATHER saw enough groups, 0: not yet
    uint64_t retry_ms;       // clock; CLOSING: not before
    uint64_t invite_ms;      // clock; OPEN: looks for more groups then
    uint32_t measured;       // newest version whose evaluation was started
    bool measured_any;
    uint64_t base_in, base_out; // traffic of earlier processes
    bool waiting_told, trouble_told;
    const char *end_reason;
    struct cn_progress progress;
};

static uint32_t newest_version(const struct cn_run *run)
{
    return cn_model_store_newest(run->config.models)->number;
}

static void notify(struct cn_run *run)
{
    if (run->config.changed)
        run->config.changed(run->config.context);
}

static void read_traffic(const struct cn_run *run, uint64_t *bytes_in, uint64_t *bytes_out)
{
    *bytes_in = *bytes_out = 0;
    if (run->config.traffic)
        run->config.traffic(run->config.context, bytes_in, bytes_out);
    *bytes_in += run->base_in;
    *bytes_out += run->base_out;
}

// over_select groups for each one of the quorum.
static uint32_t wanted_groups(const struct cn_job *job)
{
    double wanted = ceil(job->over_select * job->quorum);
    return wanted < job->quorum ? job->quorum : (uint32_t)wanted;
}

// --- opening ---

static cn_err begin_open(struct cn_run *run, uint64_t now_ms)
{
    run->phase = CN_RUN_OPEN;
    run->deadline_ms = now_ms + run->config.job->deadline_ms;
    run->wanted = wanted_groups(run->config.job);
    run->waiting_told = false;
    run->rejected = 0;
    run->invite_ms = 0;
    return cn_ledger_count(run->config.ledger, run->round, &run->selected, &run->accepted);
}

// Invites live groups until as many as wanted are in.
static cn_err invite(struct cn_run *run, uint64_t now_ms)
{
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

static cn_err open_round(struct cn_run *run, uint64_t now_ms)
{
    cn_err err = cn_ledger_open_round(run->config.ledger, run->round);
    if (!err)
        err = begin_open(run, now_ms);
    if (!err)
        err = invite(run, now_ms);
    if (!err)
        cn_log(CN_LOG_DEBUG, "run", "round %" PRIu32 " is open, %" PRIu32 " groups are invited",
               run->round, run->selected);
    return err;
}

static void tell_waiting(struct cn_run *run, uint32_t live)
{
    if (run->waiting_told)
        return;
    size_t groups = 0;
    cn_roster_groups(run->config.roster, &groups);
    cn_log(CN_LOG_INFO, "run",
           "round %" PRIu32 " waits for %" PRIu32 " groups; %zu are enrolled, %" PRIu32 " are here",
           run->round, run->config.job->quorum, groups, live);
    run->waiting_told = true;
}

static cn_err tick_gather(struct cn_run *run, uint64_t now_ms)
{
    size_t enrolled = 0;
    cn_roster_groups(run->config.roster, &enrolled);
    uint32_t live = cn_selection_live(run->config.roster, now_ms, run->config.live_ms);
    if (live < run->config.job->quorum) {
        run->quorum_seen_ms = 0;
        tell_waiting(run, live);
        return CN_OK;
    }
    if (run->quorum_seen_ms == 0)
        run->quorum_seen_ms = now_ms;
    bool all = live >= wanted_groups(run->config.job) || live >= enrolled;
    if (!all && now_ms - run->quorum_seen_ms < run->config.settle_ms)
        return CN_OK;
    return open_round(run, now_ms);
}

// --- open ---

static cn_err begin_closing(struct cn_run *run)
{
    cn_err err = cn_ledger_close_round(run->config.ledger, run->round);
    if (err)
        return err;
    run->phase = CN_RUN_CLOSING;
    run->retry_ms = 0;
    cn_spool_expire(run->config.spool, 0, 0);
    notify(run);
    return CN_OK;
}

static void extend(struct cn_run *run, uint64_t now_ms)
{
    const struct cn_job *job = run->config.job;
    cn_log(CN_LOG_WARN, "run",
           "round %" PRIu32 " has %" PRIu32 " of %" PRIu32
           " updates at its deadline: extended by %" PRIu64 " s",
           run->round, run->accepted, job->quorum, job->deadline_ms / 1000);
    run->deadline_ms = now_ms + job->deadline_ms;
    run->wanted = run->selected + (job->quorum - run->accepted);
    notify(run);
}

static cn_err tick_open(struct cn_run *run, uint64_t now_ms)
{
    if (run->accepted >= run->config.job->quorum)
        return begin_closing(run);
    if (now_ms >= run->deadline_ms)
        extend(run, now_ms);
    cn_spool_expire(run->config.spool, run->round, now_ms);
    return invite(run, now_ms);
}

// --- closing ---

static cn_err merge(struct cn_run *run)
{
    const struct cn_merge_config config = {
        .store = run->config.store,
        .ledger = run->config.ledger,
        .layout = cn_model_store_layout(run->config.models),
        .job = run->config.job,
        .graph = cn_model_store_graph_digest(run->config.models),
    };
    struct cn_model next = {0};
    uint64_t bytes_in, bytes_out;
    cn_err err = cn_merge_round(&config, cn_model_store_newest(run->config.models), &next);
    if (!err) {
        read_traffic(run, &bytes_in, &bytes_out);
        err = cn_model_store_add(run->config.models, &next, bytes_in, bytes_out);
    }
    cn_model_deinit(&next);
    return err;
}

static void end(struct cn_run *run, const char *reason)
{
    run->phase = CN_RUN_ENDED;
    run->end_reason = reason;
    notify(run);
}

// After a version: on to the next round, or the end.
static cn_err advance(struct cn_run *run)
{
    uint32_t first = run->round > 2 ? run->round - 2 : 0;
    cn_err err = cn_score_progress(run->config.ledger, run->config.job, first, &run->progress);
    if (err)
        return err;
    const char *reason = cn_score_end(run->config.job, &run->progress, newest_version(run));
    run->round = newest_version(run) + 1;
    run->selected = run->accepted = 0;
    run->quorum_seen_ms = 0;
    err = cn_model_store_prune(run->config.models, run->progress.best);
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
    if (now_ms < run->retry_ms)
        return CN_OK;
    cn_err err = merge(run);
    if (err == CN_ENOSPC || err == CN_EIO || err == CN_EAGAIN || err == CN_ENOMEM) {
        if (!run->trouble_told)
            cn_log(CN_LOG_ERROR, "run",
                   "version %" PRIu32 " is not made yet: %s; trying every %d s", run->round,
                   cn_err_text(err), RETRY_MS / 1000);
        run->trouble_told = true;
        run->retry_ms = now_ms + RETRY_MS;
        return CN_OK;
    }
    run->trouble_told = false;
    if (err == CN_ENOTFOUND)
        cn_log(CN_LOG_ERROR, "run", "an accepted update of round %" PRIu32 " is gone from the disk",
               run->round);
    if (err)
        return err;
    if (!run->config.measure)
        return advance(run);
    run->phase = CN_RUN_MEASURE;
    return CN_OK;
}

// --- measuring ---

// The next round waits for the result when that may end the run.
static bool result_decides(const struct cn_run *run)
{
    const struct cn_job *job = run->config.job;
    return job->target_accuracy > 0 || job->patience > 0 || newest_version(run) >= job->rounds;
}

// idle: no evaluation is running.
static cn_err take_result(struct cn_run *run, uint64_t now_ms, bool *idle)
{
    const struct cn_run_measure *measure = run->config.measure;
    struct cn_ledger_metrics metrics;
    *idle = true;
    if (!measure)
        return CN_OK;
    uint32_t version;
    cn_err err = measure->poll(measure->context, now_ms, &version, &metrics);
    *idle = err != CN_EAGAIN;
    if (err)
        return CN_OK; // none yet, or logged by the evaluator
    err = cn_ledger_set_central(run->config.ledger, version, &metrics);
    if (err) {
        cn_log(CN_LOG_ERROR, "run", "the measurement of version %" PRIu32 " is lost: %s", version,
               cn_err_text(err));
        return CN_OK;
    }
    return cn_score_progress(run->config.ledger, run->config.job, version, &run->progress);
}

// Starts the evaluation of the newest version if it has none, once. started says whether one runs.
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
    *started =
        measure->start(measure->context, newest->number, cn_model_weights(newest), now_ms) == CN_OK;
    return CN_OK;
}

static cn_err tick_measure(struct cn_run *run, uint64_t now_ms)
{
    bool idle, started;
    cn_err err = take_result(run, now_ms, &idle);
    if (err || !idle)
        return err;
    err = measure_newest(run, now_ms, &started);
    if (err || (started && result_decides(run)))
        return err;
    return advance(run);
}

// --- life ---

static cn_err recover(struct cn_run *run, uint64_t now_ms)
{
    struct cn_ledger_round round = {0};
    cn_err err = cn_ledger_newest_round(run->config.ledger, &round);
    if (err && err != CN_ENOTFOUND)
        return err;
    bool under_way = !err && round.state != CN_LEDGER_MERGED;
    run->round = under_way ? round.number : newest_version(run) + 1;
    if (under_way && round.state == CN_LEDGER_CLOSING) {
        run->phase = CN_RUN_CLOSING;
        return cn_ledger_count(run->config.ledger, run->round, &run->selected, &run->accepted);
    }
    const char *reason = cn_score_end(run->config.job, &run->progress, newest_version(run));
    if (under_way && !reason) {
        bool started;
        err = begin_open(run, now_ms);
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
    struct cn_ledger_version newest;
    cn_err err = cn_ledger_newest_version(config->ledger, &newest);
    if (!err) {
        opened->base_in = larger(newest.bytes_in, config->earlier_in);
        opened->base_out = larger(newest.bytes_out, config->earlier_out);
        err = cn_score_progress(config->ledger, config->job, 0, &opened->progress);
    }
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
    free(run);
}

cn_err cn_run_tick(struct cn_run *run, uint64_t now_ms)
{
    bool idle;
    cn_err err;
    switch (run->phase) {
    case CN_RUN_GATHER:
        err = take_result(run, now_ms, &idle);
        return err ? err : tick_gather(run, now_ms);
    case CN_RUN_OPEN:
        err = take_result(run, now_ms, &idle);
        return err ? err : tick_open(run, now_ms);
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
        .selected = run->selected,
        .accepted = run->accepted,
        .boards = cn_roster_registered(run->config.roster),
        .end_reason = run->end_reason,
        .progress = run->progress,
    };
    if (run->phase == CN_RUN_OPEN && run->deadline_ms > now_ms)
        state->remaining_ms = run->deadline_ms - now_ms;
    read_traffic(run, &state->bytes_in, &state->bytes_out);
}

// --- what boards hear ---

static enum cn_round_state round_state(const struct cn_run *run)
{
    if (run->phase == CN_RUN_ENDED)
        return CN_ROUND_ENDED;
    return run->phase == CN_RUN_OPEN ? CN_ROUND_OPEN : CN_ROUND_CLOSING;
}

cn_err cn_run_describe(struct cn_run *run, const char *group, uint64_t now_ms,
                       struct cn_round_info *info)
{
    const struct cn_model *newest = cn_model_store_newest(run->config.models);
    const struct cn_ledger_identity *identity = cn_ledger_identity(run->config.ledger);
    struct cn_ledger_outcome outcome;
    *info = (struct cn_round_info){
        .run = identity->run,
        .lineage = identity->lineage,
        .state = round_state(run),
        .round = run->round,
        .version = newest->number,
        .version_size = newest->size,
        .delta_size = newest->delta_size,
    };
    if (run->phase == CN_RUN_OPEN && run->deadline_ms > now_ms)
        info->remaining_ms = run->deadline_ms - now_ms;
    memcpy(info->version_digest, newest->digest, CN_DIGEST_SIZE);
    memcpy(info->parent, newest->parent, CN_DIGEST_SIZE);
    memcpy(info->delta_digest, newest->delta_digest, CN_DIGEST_SIZE);
    const struct cn_roster_group *found = cn_roster_find_group(run->config.roster, group);
    uint32_t served = found ? found->served : newest->number;
    cn_model_store_chain(run->config.models, served, &info->chain);
    cn_model_store_snapshot(run->config.models, served, &info->snapshot);
    cn_err err = CN_OK;
    if (run->phase == CN_RUN_OPEN)
        err = cn_ledger_is_selected(run->config.ledger, run->round, group, &info->invited);
    if (!err)
        err = cn_ledger_outcome(run->config.ledger, group, &outcome);
    if (err)
        return err;
    info->decided_round = outcome.round;
    info->decided_accepted = outcome.accepted;
    memcpy(info->decided_digest, outcome.digest, CN_DIGEST_SIZE);
    return CN_OK;
}

static void decide(struct cn_upload_status *status, enum cn_verdict verdict, const char *reason)
{
    status->decided = true;
    status->verdict = verdict;
    snprintf(status->reason, sizeof(status->reason), "%s", reason);
}

// A contribution that is there decides: the same frame again is the same answer.
static cn_err judge_against_accepted(struct cn_run *run, const char *group,
                                     const struct cn_declare_request *declared,
                                     struct cn_upload_status *status)
{
    struct cn_ledger_contribution accepted;
    cn_err err = cn_ledger_find_contribution(run->config.ledger, declared->round, group, &accepted);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    memcpy(status->accepted, accepted.digest, CN_DIGEST_SIZE);
    if (memcmp(accepted.digest, declared->digest, CN_DIGEST_SIZE) == 0)
        decide(status, CN_VERDICT_ACCEPTED, "");
    else
        decide(status, CN_VERDICT_REJECTED, "another update of this group counts for the round");
    return CN_OK;
}

static void judge_round(const struct cn_run *run, const struct cn_declare_request *declared,
                        bool invited, struct cn_upload_status *status)
{
    // Exactly a quorum counts, also when several complete before the round is closed.
    bool open = run->phase == CN_RUN_OPEN && run->accepted < run->config.job->quorum;
    bool awaited = run->phase == CN_RUN_GATHER;
    const struct cn_model *newest = cn_model_store_newest(run->config.models);
    if (declared->round < run->round || (declared->round == run->round && !open && !awaited))
        decide(status, CN_VERDICT_LATE, "the round is over");
    else if (declared->round > run->round || awaited)
        decide(status, CN_VERDICT_REJECTED, "the round is not open yet");
    else if (!invited)
        decide(status, CN_VERDICT_REJECTED, "the group is not invited to this round");
    else if (memcmp(declared->base, newest->digest, CN_DIGEST_SIZE) != 0)
        decide(status, CN_VERDICT_REJECTED, "the update is relative to another version");
}

cn_err cn_run_judge(struct cn_run *run, const char *group,
                    const struct cn_declare_request *declared, struct cn_upload_status *status)
{
    bool invited;
    memset(status, 0, sizeof(*status));
    if (declared->run != cn_ledger_identity(run->config.ledger)->run) {
        decide(status, CN_VERDICT_REJECTED, "the update belongs to another run");
        return CN_OK;
    }
    cn_err err = judge_against_accepted(run, group, declared, status);
    if (err || status->decided)
        return err;
    err = cn_ledger_is_selected(run->config.ledger, declared->round, group, &invited);
    if (!err)
        judge_round(run, declared, invited, status);
    return err;
}

static void describe_contribution(const struct cn_upload *upload, uint64_t weight,
                                  struct cn_ledger_contribution *contribution)
{
    const struct cn_declare_request *declared = &upload->declared;
    *contribution = (struct cn_ledger_contribution){
        .round = declared->round,
        .size = declared->size,
        .weight = weight,
        .held_out_loss = declared->held_out_loss,
        .held_out_correct = declared->held_out_correct,
        .held_out_count = declared->held_out_count,
        .train_loss = declared->train_loss,
    };
    memcpy(contribution->digest, declared->digest, CN_DIGEST_SIZE);
    snprintf(contribution->group, sizeof(contribution->group), "%s", upload->group);
    snprintf(contribution->board, sizeof(contribution->board), "%s", upload->board);
}

// File first, then ledger, then the answer: what was acknowledged is durable.
static cn_err record(struct cn_run *run, struct cn_upload *upload, uint64_t weight,
                     struct cn_upload_status *status)
{
    struct cn_ledger_contribution contribution;
    describe_contribution(upload, weight, &contribution);
    cn_err err = cn_spool_keep(run->config.spool, upload);
    if (!err)
        err = cn_ledger_accept(run->config.ledger, &contribution);
    if (err)
        return err;
    run->accepted++;
    memcpy(status->accepted, contribution.digest, CN_DIGEST_SIZE);
    decide(status, CN_VERDICT_ACCEPTED, "");
    cn_log(CN_LOG_DEBUG, "run",
           "round %" PRIu32 ": accepted %" PRIu64 " bytes of %s, %" PRIu64 " samples",
           contribution.round, contribution.size, contribution.group, weight);
    return CN_OK;
}

static void reject(struct cn_run *run, struct cn_upload *upload, const char *reason,
                   struct cn_upload_status *status)
{
    // A board that only sends rubbish must not fill the log.
    enum cn_log_level level = run->rejected++ < REJECTED_TOLD ? CN_LOG_WARN : CN_LOG_DEBUG;
    cn_log(level, "run", "round %" PRIu32 ": rejected an update of %s: %s", upload->declared.round,
           upload->board, reason);
    decide(status, CN_VERDICT_REJECTED, reason);
    cn_spool_drop(run->config.spool, upload);
}

cn_err cn_run_accept(struct cn_run *run, struct cn_upload *upload, struct cn_upload_status *status)
{
    cn_err err = cn_run_judge(run, upload->group, &upload->declared, status);
    if (err || status->decided) {
        cn_spool_drop(run->config.spool, upload);
        return err;
    }
    uint8_t *frame;
    err = cn_spool_read(run->config.spool, upload, &frame);
    if (err) {
        if (err != CN_EAGAIN)
            cn_spool_drop(run->config.spool, upload);
        return err;
    }
    struct cn_diag diag;
    uint64_t weight = 0;
    cn_diag_init(&diag);
    err = cn_admission_check(cn_model_store_layout(run->config.models), upload, frame, &diag,
                             &weight);
    free(frame);
    if (err) {
        reject(run, upload, diag.count ? cn_diag_first(&diag) : cn_err_text(err), status);
        return CN_OK;
    }
    weight = cn_admission_cap(run->config.job,
                              cn_roster_find_group(run->config.roster, upload->group), weight);
    return record(run, upload, weight, status);
}
