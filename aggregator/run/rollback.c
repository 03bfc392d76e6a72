// Goes back to an earlier version when a person asked for it.
#include <inttypes.h>
#include <string.h>

#include "aggregator/merge/ruled.h"
#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"

// Makes the next version with the weights of the ruling's source.
static cn_err make(struct cn_run *run, const struct cn_ruling *ruling, struct cn_model *next)
{
    const struct cn_merge_config config = {
        .store = run->config.store,
        .ledger = run->config.ledger,
        .layout = cn_model_store_layout(run->config.models),
        .job = run->config.job,
        .graph = cn_model_store_graph_digest(run->config.models),
    };
    struct cn_model source;
    cn_err err =
        cn_model_load_weights(config.store, config.ledger, config.layout, ruling->source, &source);
    if (err)
        return err;
    err = cn_ruled_roll_back(&config, cn_model_store_newest(run->config.models),
                             cn_model_weights(&source), next);
    cn_model_deinit(&source);
    return err;
}

static cn_err give_up(struct cn_run *run, const struct cn_ruling *ruling, cn_err why)
{
    cn_log(CN_LOG_ERROR, "run", "no rollback to version %" PRIu32 ": %s; the run goes on as it is",
           ruling->source,
           why == CN_ENOTFOUND ? "the version is not kept any more" : "its file is damaged");
    return cn_rollback_drop(run->config.ledger);
}

// The new version has the weights of the source, so it has its measurement, too.
static void copy_measurement(struct cn_run *run, const struct cn_ruling *ruling)
{
    struct cn_ledger_version source;
    cn_err err = cn_ledger_find_version(run->config.ledger, ruling->source, &source);
    if (!err && source.central.count)
        err = cn_ledger_set_central(run->config.ledger, ruling->version, &source.central);
    if (err)
        cn_log(CN_LOG_WARN, "run", "the measurement of version %" PRIu32 " is made again",
               ruling->version);
}

cn_err cn_run_find_rollback(struct cn_run *run)
{
    struct cn_ruling newest;
    cn_err err = cn_ruling_newest(run->config.ledger, CN_RULING_ROLLBACK, &newest);
    run->forget = err ? 0 : newest.version;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_run_roll_back(struct cn_run *run, bool *done)
{
    struct cn_ruling ruling;
    struct cn_model next = {0};
    struct cn_run_traffic traffic;
    *done = false;
    cn_err err = cn_rollback_waiting(run->config.ledger, &ruling);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = make(run, &ruling, &next);
    if (err == CN_ENOTFOUND || err == CN_EDIGEST)
        return give_up(run, &ruling, err);
    if (!err) {
        ruling.version = next.number;
        next.ruling = &ruling;
        cn_run_read_traffic(run, &traffic);
        err = cn_model_store_add(run->config.models, &next, traffic.in.messages,
                                 traffic.out.messages);
    }
    cn_model_deinit(&next);
    if (err)
        return err;
    cn_log(CN_LOG_WARN, "run",
           "version %" PRIu32 " has the weights of version %" PRIu32 ": rolled back, %s",
           ruling.version, ruling.source, ruling.reason);
    run->forget = ruling.version;
    copy_measurement(run, &ruling);
    cn_spool_expire(run->config.spool, 0, 0);
    *done = true;
    return CN_OK;
}
