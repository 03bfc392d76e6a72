// Makes the version of a round that is closed: merged, judged by the gate, stored.

#include "aggregator/merge/downlink.h"
#include "aggregator/merge/merge.h"
#include "aggregator/run/measured.h"
#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define RETRY_MS 3000 // pause after a merge that failed

static cn_err make_candidate(struct cn_run *run, const struct cn_merge_config *config)
{
    if (run->candidate.bytes)
        return CN_OK;
    uint64_t since_us = cn_platform_now_us();
    cn_err err = cn_merge_round(config, cn_model_store_newest(run->config.models), &run->candidate);
    run->merge_us = cn_platform_now_us() - since_us;
    run->judging = CN_JUDGE_DUE;
    run->judge_ms = run->judge_tries = 0;
    run->judged = (struct cn_ledger_metrics){0};
    return err;
}

static cn_err add_candidate(struct cn_run *run)
{
    struct cn_run_traffic traffic;
    bool refused = run->candidate.ruling != NULL;
    uint64_t since_us = cn_platform_now_us();
    cn_run_read_traffic(run, &traffic);
    cn_err err = cn_model_store_add(run->config.models, &run->candidate, traffic.in.messages,
                                    traffic.out.messages);
    run->merge_us += cn_platform_now_us() - since_us;
    if (!err)
        cn_run_note_judged(run, refused);
    return err;
}

// Makes the version, has it judged, and stores it. Sets *done when it is stored.
static cn_err merge(struct cn_run *run, uint64_t now_ms, bool *done)
{
    const struct cn_merge_config config = {
        .store = run->config.store,
        .ledger = run->config.ledger,
        .layout = cn_model_store_layout(run->config.models),
        .job = run->config.job,
        .graph = cn_model_store_graph_digest(run->config.models),
        .cuts = &run->cuts,
    };
    *done = false;
    // The quorum of an open round may change by a reload. In an asynchronous run the version
    // depends on it, so the value at the end of the round counts.
    cn_err err = cn_job_is_async(run->config.job) && !run->candidate.bytes
                     ? cn_run_load_settings(run, run->round, false)
                     : CN_OK;
    if (!err && !run->candidate.bytes)
        err = cn_downlink_decide(config.ledger, config.layout, config.job, run->round);
    if (!err)
        err = make_candidate(run, &config);
    if (!err)
        err = cn_run_gate(run, &config, now_ms);
    if (err || run->judging != CN_JUDGED)
        return err;
    err = add_candidate(run);
    *done = !err;
    return err;
}

static void count_merge(struct cn_run *run, uint64_t since_us, uint64_t now_ms)
{
    struct cn_run_counts *counts = &run->counts;
    uint64_t took_us = cn_platform_now_us() - since_us;

    counts->merged++;
    if (run->cuts.round == run->round)
        counts->cut += run->cuts.update_count;
    cn_histogram_add(&counts->merge, (double)run->merge_us / 1e6);
    if (run->opened_ms)
        cn_histogram_add(&counts->round,
                         (double)(now_ms - run->opened_ms) / 1e3 + (double)took_us / 1e6);
}

static void note_outlier(void *context, const char *group, const char *text)
{
    struct cn_run *run = context;

    cn_log_within(cn_log_quota_of(&run->outliers, group), cn_platform_now_ms(), CN_LOG_WARN, "run",
                  "round %u: %s", run->round, text);
}

cn_err cn_run_make_version(struct cn_run *run, uint64_t now_ms, bool *made)
{
    *made = false;
    if (now_ms < run->retry_ms)
        return CN_OK;
    uint64_t since_us = cn_platform_now_us();
    cn_err err = merge(run, now_ms, made);
    if (err == CN_ENOSPC || err == CN_EIO || err == CN_EAGAIN || err == CN_ENOMEM) {
        if (!run->trouble_told)
            cn_log(CN_LOG_ERROR, "run", "version %u is not made yet: %s; trying every %d s",
                   run->round, cn_err_text(err), RETRY_MS / 1000);
        run->trouble_told = true;
        run->trouble = err;
        run->retry_ms = now_ms + RETRY_MS;
        return CN_OK;
    }
    run->trouble_told = false;
    run->trouble = CN_OK;
    if (err == CN_ENOTFOUND)
        cn_log(CN_LOG_ERROR, "run", "an accepted update of round %u is gone from the disk",
               run->round);
    if (err || !*made)
        return err;
    count_merge(run, since_us, now_ms);
    err = cn_measured_outliers(run->config.ledger, run->round, note_outlier, run);
    if (err)
        cn_log(CN_LOG_WARN, "run", "what the groups measured is not compared: %s",
               cn_err_text(err));
    return CN_OK;
}
