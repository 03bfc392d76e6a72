// Goes back to an earlier version when a person asked for it.
#include <string.h>

#include "aggregator/merge/ruled.h"
#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"

#define TRIES 3 // failed reads of the version, after which the rollback is given up

// Reads the weights of the ruling's source.
static cn_err load(struct cn_run *run, const struct cn_ruling *ruling, struct cn_model *source)
{
    const struct cn_run_config *config = &run->config;
    return cn_model_load_weights(config->store, config->ledger,
                                 cn_model_store_layout(config->models), ruling->source, source);
}

// Makes the next version with the weights of the source.
static cn_err make(struct cn_run *run, const struct cn_model *source, struct cn_model *next)
{
    const struct cn_merge_config config = {
        .store = run->config.store,
        .ledger = run->config.ledger,
        .layout = cn_model_store_layout(run->config.models),
        .job = run->config.job,
        .graph = cn_model_store_graph_digest(run->config.models),
    };
    return cn_ruled_roll_back(&config, cn_model_store_newest(run->config.models),
                              cn_model_weights(source), next);
}

// Makes the open round the round of the run. It invites groups when the run next looks for
// settings. That happens only if the version cannot be stored now.
static void enter_round(struct cn_run *run)
{
    run->phase = CN_RUN_OPEN;
    run->opened_ms = run->invite_ms = 0;
    run->deadline_ms = run->settings_ms + run->config.job->deadline_ms;
    run->wanted = run->selected = run->accepted = 0;
    run->waiting = (struct cn_waiting){0};
}

// Opens the round of the version, so that a reload cannot change its settings before it is stored:
// a reload writes settings for rounds that are not open. An attempt that was killed or failed may
// have left the round open.
static cn_err open_round(struct cn_run *run)
{
    struct cn_ledger_round newest;
    cn_err err = cn_ledger_newest_round(run->config.ledger, &newest);
    bool open = !err && newest.state == CN_LEDGER_OPEN;
    if (err && err != CN_ENOTFOUND)
        return err;
    err = open ? CN_OK : cn_ledger_open_round(run->config.ledger, run->round);
    if (err)
        return err;
    if (run->phase == CN_RUN_GATHER)
        enter_round(run);
    if (!open && run->config.live)
        err = cn_live_job_follow(run->config.live, run->round, false);
    return err ? err : cn_run_open_control(run); // also the version's round is of an epoch
}

// Says whether a rollback whose version cannot be read is given up. A disk may recover.
static bool is_hopeless(struct cn_run *run, cn_err why)
{
    if (why == CN_EIO)
        return ++run->rollback_tries >= TRIES;
    return why == CN_ENOTFOUND || why == CN_EDIGEST || why == CN_ERANGE || why == CN_EFORMAT;
}

static cn_err give_up(struct cn_run *run, const struct cn_ruling *ruling, cn_err why)
{
    cn_log(CN_LOG_ERROR, "run", "no rollback to version %u: %s; the run goes on as it is",
           ruling->source,
           why == CN_ENOTFOUND ? "the version is not kept any more"
           : why == CN_EDIGEST ? "its file is damaged"
                               : cn_err_text(why));
    run->rollback_tries = 0;
    return cn_rulings_drop_rollback(run->config.ledger);
}

// The new version has the weights of the source, so it has its measurement, too.
static void copy_measurement(struct cn_run *run, const struct cn_ruling *ruling)
{
    struct cn_ledger_version source;
    cn_err err = cn_ledger_find_version(run->config.ledger, ruling->source, &source);
    if (!err && source.central.count)
        err = cn_ledger_set_central(run->config.ledger, ruling->version, &source.central);
    if (err)
        cn_log(CN_LOG_WARN, "run", "the measurement of version %u is made again", ruling->version);
}

static cn_err store(struct cn_run *run, const struct cn_model *source, struct cn_ruling *ruling)
{
    struct cn_model next = {0};
    struct cn_run_traffic traffic;
    cn_err err = open_round(run);
    if (!err)
        err = make(run, source, &next);
    if (!err) {
        ruling->version = next.number;
        next.ruling = ruling;
        cn_run_read_traffic(run, &traffic);
        err = cn_model_store_add(run->config.models, &next, traffic.in.messages,
                                 traffic.out.messages);
    }
    cn_model_deinit(&next);
    return err;
}

// Logs a lack of memory once, and has the caller try again.
static cn_err put_off(struct cn_run *run, const struct cn_ruling *ruling)
{
    if (!run->trouble_told)
        cn_log(CN_LOG_ERROR, "run", "no rollback to version %u yet: %s", ruling->source,
               cn_err_text(CN_ENOMEM));
    run->trouble_told = true;
    return CN_EAGAIN;
}

cn_err cn_run_roll_back(struct cn_run *run, bool *done)
{
    struct cn_ruling ruling;
    struct cn_model source;
    *done = false;
    cn_err err = cn_rulings_waiting_rollback(run->config.ledger, &ruling);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = load(run, &ruling, &source);
    if (err && is_hopeless(run, err))
        return give_up(run, &ruling, err);
    if (!err)
        err = store(run, &source, &ruling);
    cn_model_deinit(&source);
    if (err)
        return err == CN_ENOMEM ? put_off(run, &ruling) : err;
    cn_log(CN_LOG_WARN, "run", "version %u has the weights of version %u: rolled back, %s",
           ruling.version, ruling.source, ruling.reason);
    run->rolled_back = ruling.version;
    run->rollback_tries = 0;
    run->trouble_told = false;
    copy_measurement(run, &ruling);
    cn_spool_expire(run->config.spool, 0, 0, 0);
    *done = true;
    return CN_OK;
}
