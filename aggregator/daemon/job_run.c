#include "aggregator/daemon/job_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "aggregator/daemon/mend.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/merge/merge.h"
#include "aggregator/serve/status.h"
#include "runtime/base/log.h"

#define LIVE_MS 120000   // a group heard within this time can be invited
#define SETTLE_MS 3000   // wait for more groups than the quorum
#define EXPIRY_MS 600000 // an upload that advances less than 1/64 in this time is dropped
#define RETRY_MS 3000    // after an error that may pass

// Finds the number of rows that the newest version's state has, which its own settings decide.
static cn_err find_state_rows(struct cn_job_run *run, size_t *rows)
{
    struct cn_ledger_version newest;
    struct cn_job job = run->setup.job;
    cn_err err = cn_ledger_newest_version(run->setup.ledger, &newest);
    if (!err && newest.number)
        err = cn_job_settings_load(run->setup.ledger, newest.number, &run->setup.job, &job);
    *rows = cn_merge_state_rows(&job);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static cn_err open_models(struct cn_job_run *run)
{
    const struct cn_model_file *file = &run->setup.model;
    const struct cn_gateway_settings *gateway = &run->setup.settings->gateway;
    size_t state_rows = 0;
    cn_err err = find_state_rows(run, &state_rows);
    if (err)
        return err;
    float *initial = calloc(file->layout.total + 1, sizeof(*initial));
    if (!initial)
        return CN_ENOMEM;
    const struct cn_model_store_config config = {
        .store = run->setup.store,
        .ledger = run->setup.ledger,
        .layout = &file->layout,
        .snapshot_every = run->setup.settings->job.options.snapshot_every,
        .state_rows = state_rows,
        .graph = file->graph.data,
        .graph_size = file->graph.size,
        .initial = initial,
        .keep_rounds = gateway->keep_rounds,
        .keep_versions = gateway->keep_versions,
    };
    err = cn_onnx_weights(file->onnx, &file->layout, initial);
    if (!err)
        err = cn_model_store_open(&config, &run->models);
    free(initial);
    return err;
}

static cn_err open_files(struct cn_job_run *run)
{
    const struct cn_spool_config spool = {
        .store = run->setup.store,
        .frame_max = cn_update_size_max(&run->setup.model.layout),
        .limit = run->setup.settings->gateway.spool_limit,
        .chunk_size = CN_RESOURCES_CHUNK_SIZE,
        .expiry_ms = EXPIRY_MS,
        .disk = run->setup.settings->state,
        .reserve = run->setup.settings->reserve,
    };
    cn_err err = cn_spool_open(&spool, &run->spool);
    if (!err)
        err = open_models(run);
    if (err)
        fprintf(stderr, "%s: %s\n", run->setup.settings->state, cn_err_text(err));
    return err;
}

static cn_err open_evaluator(struct cn_job_run *run, const struct cn_ports *ports)
{
    cn_err err = cn_setup_open_evaluator(&run->setup, ports, &run->evaluator);
    if (!err && run->evaluator)
        cn_evaluator_measure(run->evaluator, &run->measure);
    return err;
}

static cn_err open_run(struct cn_job_run *run, const struct cn_job_run_shared *shared)
{
    run->live = (struct cn_live_job){.ledger = run->setup.ledger,
                                     .layout = &run->setup.model.layout,
                                     .models = run->models,
                                     .job = &run->setup.job};
    struct cn_run_config config = {
        .job = &run->setup.job,
        .live = &run->live,
        .ledger = run->setup.ledger,
        .store = run->setup.store,
        .roster = shared->roster,
        .spool = run->spool,
        .models = run->models,
        .measure = run->evaluator ? &run->measure : NULL,
        .live_ms = LIVE_MS,
        .settle_ms = SETTLE_MS,
        .context = shared->context,
        .changed = shared->changed,
        .traffic = shared->traffic,
    };
    cn_status_read_traffic(run->setup.settings->state, &config.earlier);
    cn_err err = cn_run_open(&config, cn_platform_now_ms(), &run->run);
    if (err)
        fprintf(stderr, "%s: %s\n", run->setup.settings->state, cn_err_text(err));
    return err;
}

cn_err cn_job_run_open(struct cn_job_run *run, const struct cn_job_run_shared *shared)
{
    cn_err err = cn_mend_newest(&run->setup);
    if (!err)
        err = open_files(run);
    if (!err)
        err = open_evaluator(run, shared->ports);
    if (!err)
        err = open_run(run, shared);
    return err;
}

void cn_job_run_close(struct cn_job_run *run)
{
    cn_run_close(run->run);
    cn_evaluator_close(run->evaluator);
    cn_model_store_close(run->models);
    cn_spool_close(run->spool);
    cn_setup_deinit(&run->setup);
    run->run = NULL;
    run->evaluator = NULL;
    run->models = NULL;
    run->spool = NULL;
}

cn_err cn_job_run_tick(struct cn_job_run *run, uint64_t now_ms)
{
    if (now_ms < run->retry_ms)
        return CN_OK;
    cn_err err = cn_run_tick(run->run, now_ms);
    bool passes = err == CN_EAGAIN || err == CN_ENOSPC || err == CN_EIO;
    if (passes && err != run->trouble)
        cn_log(CN_LOG_ERROR, "run", "the run waits: %s; trying every %d s", cn_err_text(err),
               RETRY_MS / 1000);
    if (passes)
        run->retry_ms = now_ms + RETRY_MS;
    run->trouble = passes ? err : CN_OK;
    return passes ? CN_OK : err;
}
