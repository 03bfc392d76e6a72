#include "aggregator/command/view/try_result.h"

#include <inttypes.h>
#include <stdio.h>

#include "aggregator/run/score.h"
#include "aggregator/show/bytes_text.h"
#include "aggregator/show/show_parts.h"

const char *cn_try_result_end(const struct cn_setup *setup)
{
    const char *reason = NULL;
    struct cn_job job;
    if (cn_setup_find_job(setup, &job) || cn_score_find_end(setup->ledger, &job, &reason) ||
        !reason)
        return NULL;
    // A profile whose rounds.count was raised since lets the run go on.
    return cn_score_find_end(setup->ledger, &setup->settings->job, &reason) ? NULL : reason;
}

static const char *name_loss(const struct cn_job *job)
{
    static const char *const names[] = {[CN_LOSS_CROSS_ENTROPY] = "cross_entropy",
                                        [CN_LOSS_MSE] = "mse",
                                        [CN_LOSS_BINARY_ENTROPY] = "binary_cross_entropy",
                                        [CN_LOSS_HUBER] = "huber",
                                        [CN_LOSS_L1] = "l1",
                                        [CN_LOSS_OUTPUT] = "the model's own"};
    return names[job->loss];
}

// As the run chooses the best version (score.h): "highest accuracy".
static const char *name_best(const struct cn_job *job)
{
    static const char *const names[] = {
        [CN_METRIC_ACCURACY] = "highest accuracy",      [CN_METRIC_LOSS] = "lowest loss",
        [CN_METRIC_TOP5] = "highest top-5 accuracy",    [CN_METRIC_F1] = "highest F1",
        [CN_METRIC_MAE] = "lowest mean absolute error",
    };
    return names[cn_job_metric(job)];
}

void cn_try_result_describe(const struct cn_job *job)
{
    printf("loss: %s; the best version has the %s on rows that no board has\n", name_loss(job),
           name_best(job));
}

static void format_score(const struct cn_job *job, const struct cn_score *score, char accuracy[16],
                         char loss[16])
{
    bool has_accuracy = score->known && job->loss == CN_LOSS_CROSS_ENTROPY;
    snprintf(accuracy, 16, "-");
    snprintf(loss, 16, "-");
    if (has_accuracy)
        snprintf(accuracy, 16, "%.4f", score->accuracy);
    if (score->known)
        snprintf(loss, 16, "%.5g", score->loss);
}

static void print_table(const struct cn_ledger_version *newest, const struct cn_score *score,
                        const struct cn_job *job, const char *digest)
{
    char up[24], down[24], accuracy[16], loss[16];
    cn_bytes_text(newest->bytes_in, up);
    cn_bytes_text(newest->bytes_out, down);
    format_score(job, score, accuracy, loss);
    printf("\n%7s  %8s  %9s  %10s  %10s  %s\n", "rounds", "accuracy", "loss", "msgs up",
           "msgs down", "digest");
    printf("%7u  %8s  %9s  %10s  %10s  %.24s\n", newest->number, accuracy, loss, up, down, digest);
}

static void print_best(const struct cn_run_progress *progress, const struct cn_job *job)
{
    char accuracy[16], loss[16];
    const struct cn_score *best = &progress->best_score;
    if (!best->known)
        return;
    format_score(job, best, accuracy, loss);
    if (job->loss == CN_LOSS_CROSS_ENTROPY)
        printf("best by accuracy: version %u, accuracy %s, loss %s\n", progress->best, accuracy,
               loss);
    else
        printf("best by loss: version %u, loss %s\n", progress->best, loss);
}

static void print_score_json(const struct cn_score *score, const struct cn_job *job)
{
    if (score->known && job->loss == CN_LOSS_CROSS_ENTROPY)
        printf(",\"accuracy\":%.9g", score->accuracy);
    if (score->known)
        printf(",\"loss\":%.9g", score->loss);
}

static void print_json(const struct cn_ledger_version *newest, const struct cn_score *score,
                       const struct cn_run_progress *progress, const struct cn_job *job,
                       const char *digest)
{
    printf("{\"rounds\":%u", newest->number);
    print_score_json(score, job);
    printf(",\"bytes_up\":%" PRIu64 ",\"bytes_down\":%" PRIu64 ",\"digest\":\"%s\"",
           newest->bytes_in, newest->bytes_out, digest);
    if (progress->best_score.known) {
        printf(",\"best\":{\"version\":%u,\"by\":\"%s\"", progress->best, cn_show_metric(job));
        print_score_json(&progress->best_score, job);
        printf("}");
    }
    printf("}\n");
}

int cn_try_result_print(const struct cn_setup *setup, const char *folder, bool json)
{
    struct cn_ledger_version newest;
    struct cn_run_progress progress = {0};
    struct cn_score score;
    struct cn_job job;
    char digest[2 * CN_DIGEST_SIZE + 1];
    cn_err err = cn_ledger_newest_version(setup->ledger, &newest);
    if (!err)
        err = cn_setup_find_job(setup, &job);
    if (!err)
        err = cn_score_progress(setup->ledger, &job, 0, &progress);
    if (err) {
        fprintf(stderr, "error: %s: %s\n", folder,
                err == CN_ENOTFOUND ? "no version was made" : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    cn_score_of(&newest, &score);
    cn_hex(digest, newest.digest, CN_DIGEST_SIZE);
    if (json) {
        print_json(&newest, &score, &progress, &job, digest);
    } else {
        print_table(&newest, &score, &job, digest);
        print_best(&progress, &job);
    }
    return CN_EXIT_DONE;
}
