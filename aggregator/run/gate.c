#include "aggregator/run/gate.h"

#include <math.h>
#include <stdio.h>

#include "aggregator/ledger/ancestry.h"
#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define TRIES 3       // measurements of a version that may fail
#define RETRY_MS 3000 // pause after one of them

static bool is_set(const struct cn_job *job)
{
    return job->gate.loss > 0 || job->gate.accuracy > 0;
}

// The best measurements among the versions that a version comes from.
struct best {
    uint32_t count; // number of versions that were measured
    double loss, accuracy;
};

static void take_best(const struct cn_ledger_metrics *central, struct best *best)
{
    if (!central->count)
        return;
    double loss = central->loss / (double)central->count;
    double accuracy = (double)central->correct / (double)central->count;
    best->loss = best->count && best->loss < loss ? best->loss : loss;
    best->accuracy = best->count && best->accuracy > accuracy ? best->accuracy : accuracy;
    best->count++;
}

static cn_err find_best(struct cn_ledger *ledger, uint32_t number, struct best *best)
{
    struct cn_ledger_version version;
    uint32_t earlier = number, next;
    bool ruled;
    *best = (struct best){0};
    cn_err err = number ? cn_ancestry_parent(ledger, number, &earlier, &ruled) : CN_OK;
    for (int taken = 0; !err && number && taken < CN_GATE_VERSIONS;) {
        err = cn_ledger_find_version(ledger, earlier, &version);
        if (err)
            return err;
        take_best(&version.central, best);
        if (!earlier)
            break;
        err = cn_ancestry_parent(ledger, earlier, &next, &ruled);
        taken += !ruled; // else it is the same weights once more
        earlier = next;
    }
    return err;
}

cn_err cn_gate_judge(struct cn_ledger *ledger, const struct cn_job *job, uint32_t number,
                     const struct cn_ledger_metrics *metrics, bool *refused,
                     struct cn_ruling *ruling)
{
    struct best best;
    bool finite = metrics && metrics->count && isfinite(metrics->loss);
    *ruling = (struct cn_ruling){
        .version = number, .kind = CN_RULING_REFUSED, .source = number ? number - 1 : 0};
    cn_err err = find_best(ledger, number, &best);
    if (err)
        return err;
    if (finite) {
        ruling->loss = metrics->loss / (double)metrics->count;
        ruling->accuracy = (double)metrics->correct / (double)metrics->count;
    }
    *refused = true;
    if (!finite)
        snprintf(ruling->reason, sizeof(ruling->reason), "its loss is not finite");
    else if (job->gate.loss > 0 && best.count && ruling->loss > best.loss + job->gate.loss)
        snprintf(ruling->reason, sizeof(ruling->reason),
                 "its loss is %.6g, the best of the versions before it is %.6g and gate.loss is "
                 "%.6g",
                 ruling->loss, best.loss, job->gate.loss);
    else if (job->gate.accuracy > 0 && best.count &&
             ruling->accuracy < best.accuracy - job->gate.accuracy)
        snprintf(ruling->reason, sizeof(ruling->reason),
                 "its accuracy is %.4f, the best of the versions before it is %.4f and "
                 "gate.accuracy is %.4g %%",
                 ruling->accuracy, best.accuracy, 100 * job->gate.accuracy);
    else
        *refused = false;
    return CN_OK;
}

// --- in the run ---

static cn_err parent_metrics(struct cn_run *run, struct cn_ledger_metrics *metrics)
{
    struct cn_ledger_version parent;
    cn_err err = cn_ledger_find_version(run->config.ledger, run->candidate.number - 1, &parent);
    *metrics = parent.central;
    return err;
}

// Replaces the candidate by the version that a refusal makes.
static cn_err refuse(struct cn_run *run, const struct cn_merge_config *config)
{
    struct cn_model refused;
    cn_err err = cn_ruled_refuse(config, cn_model_store_newest(run->config.models), &refused);
    if (err)
        return err;
    err = parent_metrics(run, &run->judged);
    if (err) {
        cn_model_deinit(&refused);
        return err;
    }
    cn_log(CN_LOG_WARN, "run", "version %u is refused: %s", run->ruling.version,
           run->ruling.reason);
    cn_model_deinit(&run->candidate);
    run->candidate = refused;
    run->candidate.ruling = &run->ruling;
    return CN_OK;
}

static cn_err judge(struct cn_run *run, const struct cn_merge_config *config,
                    const struct cn_ledger_metrics *metrics)
{
    bool refused;
    cn_err err = cn_gate_judge(run->config.ledger, run->config.job, run->candidate.number, metrics,
                               &refused, &run->ruling);
    if (!err && metrics)
        run->judged = *metrics;
    if (!err && refused)
        err = refuse(run, config);
    run->judging = err ? run->judging : CN_JUDGED;
    return err;
}

// A measurement that fails, for example by a lack of memory, must not stop the run for good.
static void note_failure(struct cn_run *run, uint64_t now_ms)
{
    run->judging = CN_JUDGE_DUE;
    run->judge_ms = now_ms + RETRY_MS;
    if (++run->judge_tries < TRIES)
        return;
    cn_log(CN_LOG_ERROR, "run",
           "version %u counts without a measurement: %d of them failed, so the gate has "
           "nothing to judge by",
           run->candidate.number, TRIES);
    run->judging = CN_JUDGED;
}

static cn_err start(struct cn_run *run, uint64_t now_ms)
{
    const struct cn_run_measure *measure = run->config.measure;
    bool idle;
    cn_err err = cn_run_store_result(run, now_ms, &idle); // result of the version before
    if (err || !idle || now_ms < run->judge_ms)
        return err;
    err = measure->start(measure->context, run->candidate.number, cn_model_weights(&run->candidate),
                         now_ms);
    run->measure_ms = now_ms;
    if (!err)
        run->judging = CN_JUDGE_MEASURES;
    else if (err != CN_EAGAIN)
        note_failure(run, now_ms);
    return CN_OK;
}

static cn_err poll(struct cn_run *run, const struct cn_merge_config *config, uint64_t now_ms)
{
    const struct cn_run_measure *measure = run->config.measure;
    struct cn_ledger_metrics metrics;
    uint32_t version;
    cn_err err = measure->poll(measure->context, now_ms, &version, &metrics);
    if (err == CN_EAGAIN)
        return CN_OK;
    if (!err)
        cn_histogram_add(&run->counts.evaluation, (double)(now_ms - run->measure_ms) / 1e3);
    if (!err || err == CN_EDIVERGED)
        return judge(run, config, err ? NULL : &metrics);
    note_failure(run, now_ms);
    return CN_OK;
}

cn_err cn_run_gate(struct cn_run *run, const struct cn_merge_config *config, uint64_t now_ms)
{
    if (!is_set(run->config.job) || !run->config.measure)
        run->judging = CN_JUDGED;
    if (run->judging == CN_JUDGE_DUE)
        return start(run, now_ms);
    return run->judging == CN_JUDGE_MEASURES ? poll(run, config, now_ms) : CN_OK;
}

void cn_run_note_judged(struct cn_run *run, bool refused)
{
    uint32_t number = cn_model_store_newest(run->config.models)->number, streak = 0;
    if (run->judged.count)
        cn_run_watch_loss(run, number, &run->judged);
    if (run->judged.count && cn_ledger_set_central(run->config.ledger, number, &run->judged))
        cn_log(CN_LOG_WARN, "run", "the measurement of version %u is made again", number);
    if (refused)
        run->refused = number;
    if (refused && cn_ruling_streak(run->config.ledger, &streak) == CN_OK &&
        streak >= CN_RULING_ALARM)
        cn_log(CN_LOG_ERROR, "run",
               "the gate refused %u versions in a row: a group, the data or the limit is "
               "wrong; `status` has the reasons",
               streak);
}
