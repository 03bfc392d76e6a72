#include "aggregator/run/score.h"

#include <stdio.h>

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

// Compares by accuracy for cross-entropy, by loss otherwise and for equal accuracy.
static bool is_better(const struct cn_job *job, const struct cn_score *a, const struct cn_score *b)
{
    if (!a->known || !b->known)
        return a->known;
    if (job->loss == CN_LOSS_CROSS_ENTROPY && a->accuracy != b->accuracy)
        return a->accuracy > b->accuracy;
    return a->loss < b->loss;
}

cn_err cn_score_progress(struct cn_ledger *ledger, const struct cn_job *job, uint32_t first,
                         struct cn_run_progress *progress)
{
    struct cn_ledger_version version;
    struct cn_score score;
    cn_err err = CN_OK;
    for (uint32_t number = first;; number++) {
        err = cn_ledger_find_version(ledger, number, &version);
        if (err)
            break;
        cn_score_of(&version, &score);
        if (!score.known)
            continue;
        if (number >= progress->newest_known) {
            progress->newest_known = number;
            progress->newest_score = score;
        }
        if (is_better(job, &score, &progress->best_score)) {
            progress->best = number;
            progress->best_score = score;
        }
    }
    return err == CN_ENOTFOUND ? CN_OK : err;
}

const char *cn_score_end(const struct cn_job *job, const struct cn_run_progress *progress,
                         uint32_t newest)
{
    if (newest >= job->rounds)
        return "all rounds are done";
    if (job->target_accuracy > 0 && progress->best_score.known &&
        progress->best_score.accuracy >= job->target_accuracy)
        return "the target accuracy is reached";
    if (job->patience && progress->newest_known - progress->best >= job->patience)
        return "the model stopped getting better";
    return NULL;
}
