#include "aggregator/run/score.h"

#include <math.h>
#include <stdio.h>

#include "aggregator/ledger/ancestry.h"

void cn_score_of(const struct cn_ledger_version *version, struct cn_score *score)
{
    const struct cn_ledger_metrics *metrics =
        version->central.count ? &version->central : &version->boards;
    *score = (struct cn_score){0};
    if (metrics->count == 0)
        return;
    score->known = true;
    score->central = version->central.count != 0;
    score->accuracy = (double)metrics->correct / (double)metrics->count;
    score->loss = metrics->loss / (double)metrics->count;
    score->measures = metrics->measures;
}

void cn_score_text(const struct cn_score *score, bool json, char text[CN_SCORE_TEXT])
{
    const struct {
        const char *title, *key;
        double value;
    } measures[] = {
        {"top-5", "top5", score->measures.top5},
        {"F1", "f1", score->measures.f1},
        {"MAE", "mae", score->measures.mae},
        {"perplexity", "perplexity", score->measures.perplexity},
    };
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++) {
        const char *format = json ? ",\"%s\":%.6g" : ", %s %.4g";
        if (measures[i].value > 0)
            used += (size_t)snprintf(text + used, CN_SCORE_TEXT - used, format,
                                     json ? measures[i].key : measures[i].title, measures[i].value);
    }
}

double cn_score_value(const struct cn_score *score, enum cn_metric metric)
{
    const double measures[] = {
        [CN_METRIC_TOP5] = score->measures.top5,
        [CN_METRIC_F1] = score->measures.f1,
        [CN_METRIC_MAE] = score->measures.mae,
    };
    if (!score->known)
        return NAN;
    if (metric == CN_METRIC_ACCURACY)
        return score->accuracy;
    if (metric == CN_METRIC_LOSS)
        return score->loss;
    return measures[metric] > 0 ? measures[metric] : NAN;
}

// Compares by the job's metric, and by the loss where that is equal. A score that lacks the metric
// is worse than each that has it.
static bool is_better(const struct cn_job *job, const struct cn_score *a, const struct cn_score *b)
{
    enum cn_metric metric = cn_job_metric(job);
    double of_a = cn_score_value(a, metric), of_b = cn_score_value(b, metric);
    if (isnan(of_a) || isnan(of_b))
        return !isnan(of_a);
    if (of_a != of_b)
        return cn_metric_rises(metric) ? of_a > of_b : of_a < of_b;
    return a->loss < b->loss;
}

// Restarts the progress from the version of a rollback, if there was one since: the versions that
// it gave up no longer count.
static cn_err follow_rollback(struct cn_ledger *ledger, uint32_t *first,
                              struct cn_run_progress *progress)
{
    struct cn_ruling newest;
    cn_err err = cn_ruling_newest(ledger, CN_RULING_ROLLBACK, &newest);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    if (newest.version != progress->rolled_back) {
        *progress = (struct cn_run_progress){.rolled_back = newest.version,
                                             .witnesses = progress->witnesses,
                                             .metric = progress->metric};
        *first = 0;
    }
    return CN_OK;
}

// Restarts the progress when the run has got its second group: one was enough before.
static cn_err follow_groups(struct cn_ledger *ledger, const struct cn_job *job, uint32_t *first,
                            struct cn_run_progress *progress)
{
    bool several;
    cn_err err = cn_ledger_has_groups(ledger, &several);
    uint32_t witnesses = !err && several && !job->trust_boards ? 2 : 1;
    if (!err && progress->witnesses && progress->witnesses != witnesses) {
        *progress = (struct cn_run_progress){.rolled_back = progress->rolled_back,
                                             .metric = progress->metric};
        *first = 0;
    }
    progress->witnesses = witnesses;
    return err;
}

// Restarts the progress when the job compares by another metric.
static void follow_metric(const struct cn_job *job, uint32_t *first,
                          struct cn_run_progress *progress)
{
    enum cn_metric metric = cn_job_metric(job);
    if (progress->metric != CN_METRIC_AUTO && progress->metric != metric) {
        *progress = (struct cn_run_progress){.rolled_back = progress->rolled_back,
                                             .witnesses = progress->witnesses};
        *first = 0;
    }
    progress->metric = metric;
}

// Takes a version that was not given up. One that the gate refused has its parent's weights, so it
// is never the best one.
static cn_err take_version(struct cn_ledger *ledger, const struct cn_job *job,
                           const struct cn_ledger_version *version,
                           struct cn_run_progress *progress)
{
    struct cn_score score;
    struct cn_ruling ruling;
    cn_score_of(version, &score);
    if (!score.known)
        return CN_OK;
    bool counts = score.central || version->measured_by >= progress->witnesses;
    if (counts && version->number >= progress->newest_known) {
        progress->newest_known = version->number;
        progress->newest_score = score;
    }
    bool best = counts && is_better(job, &score, &progress->best_score);
    bool candidate = is_better(job, &score, &progress->candidate_score);
    if (!best && !candidate)
        return CN_OK;
    cn_err err = cn_ruling_find(ledger, version->number, &ruling);
    if (err && err != CN_ENOTFOUND)
        return err;
    if (!err && ruling.kind == CN_RULING_REFUSED)
        return CN_OK;
    if (best) {
        progress->best = version->number;
        progress->best_score = score;
    }
    if (candidate) {
        progress->candidate = version->number;
        progress->candidate_score = score;
    }
    return CN_OK;
}

cn_err cn_score_progress(struct cn_ledger *ledger, const struct cn_job *job, uint32_t first,
                         struct cn_run_progress *progress)
{
    struct cn_ledger_version version;
    struct cn_ancestry_gap gap = {0};
    bool gaps = true;
    cn_err err = follow_rollback(ledger, &first, progress);
    if (!err)
        err = follow_groups(ledger, job, &first, progress);
    follow_metric(job, &first, progress);
    for (uint32_t number = first; !err; number++) {
        if (gaps && number >= gap.version) {
            err = cn_ancestry_find_gap(ledger, number, &gap);
            gaps = !err;
            err = err == CN_ENOTFOUND ? CN_OK : err;
        }
        if (gaps && number > gap.source)
            number = gap.version;
        if (!err)
            err = cn_ledger_find_version(ledger, number, &version);
        if (!err)
            err = take_version(ledger, job, &version, progress);
    }
    return err == CN_ENOTFOUND ? CN_OK : err;
}

void cn_score_lag_text(const struct cn_run_progress *progress, uint32_t newest, bool over,
                       char text[CN_SCORE_LAG])
{
    const struct cn_score *score = &progress->newest_score;
    text[0] = '\0';
    if (score->known && !score->central && progress->newest_known < newest)
        snprintf(text, CN_SCORE_LAG,
                 "version %u %s: boards measure a version in the round after it", newest,
                 over ? "has no score" : "has no score yet");
}

cn_err cn_score_find_end(struct cn_ledger *ledger, const struct cn_job *job, const char **reason)
{
    struct cn_run_progress progress = {0};
    struct cn_ledger_version newest;
    *reason = NULL;
    cn_err err = cn_ledger_newest_version(ledger, &newest);
    if (!err)
        err = cn_score_progress(ledger, job, 0, &progress);
    if (!err)
        *reason = cn_score_end(job, &progress, newest.number);
    return err;
}

uint32_t cn_score_age(const struct cn_run_progress *progress)
{
    if (!progress->best_score.known)
        return 0; // nothing can be better or worse
    // After a rollback the model gets the time to become better again.
    uint32_t since =
        progress->best > progress->rolled_back ? progress->best : progress->rolled_back;
    return progress->newest_known > since ? progress->newest_known - since : 0;
}

const char *cn_score_end(const struct cn_job *job, const struct cn_run_progress *progress,
                         uint32_t newest)
{
    if (newest >= job->rounds)
        return "all rounds are done";
    if (job->target_accuracy > 0 && progress->best_score.known &&
        progress->best_score.accuracy >= job->target_accuracy)
        return "the target accuracy is reached";
    if (progress->best_score.known &&
        cn_job_reaches(job, cn_score_value(&progress->best_score, cn_job_metric(job))))
        return "stop.target is reached";
    if (job->patience && cn_score_age(progress) >= job->patience)
        return "the model stopped getting better";
    return NULL;
}
