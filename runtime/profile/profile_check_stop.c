// Checks the rules by which measurements end a run.
#include "runtime/profile/profile_private.h"

// Returns the key by which a measurement may end the run.
static const char *stop_key(const struct cn_job *job)
{
    return job->patience      ? "job.stop.patience"
           : job->target != 0 ? "job.stop.target"
                              : "job.stop.target_accuracy";
}

// Refuses a metric that the job's loss does not have.
static void check_metric(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    bool classes = job->loss == CN_LOSS_CROSS_ENTROPY;
    bool values = job->loss == CN_LOSS_MSE || job->loss == CN_LOSS_HUBER || job->loss == CN_LOSS_L1;

    if (job->metric == CN_METRIC_AUTO || job->metric == CN_METRIC_LOSS ||
        (job->metric == CN_METRIC_MAE ? values : classes))
        return;
    cn_diagnostics_error(report, cn_profile_place(profile, "job.stop.metric", report),
                         "stop.metric: the job's loss has no such measure; expected loss%s",
                         classes  ? ", accuracy, top5 or f1"
                         : values ? " or mae"
                                  : "");
}

// Refuses a target that no version reaches, or that each does.
static void check_target(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    enum cn_metric metric = cn_job_metric(job);
    bool own = job->loss == CN_LOSS_OUTPUT && metric == CN_METRIC_LOSS;
    bool share = metric != CN_METRIC_LOSS && metric != CN_METRIC_MAE;

    if (job->target != 0 && !own && (job->target < 0 || (share && job->target > 1)))
        cn_diagnostics_error(report, cn_profile_place(profile, "job.stop.target", report),
                             "stop.target: %g is no value of the metric; expected %s", job->target,
                             share ? "above 0 to 1, such as 0.9" : "a number above 0");
    if (job->target_accuracy > 0 && job->loss == CN_LOSS_CROSS_ENTROPY &&
        metric != CN_METRIC_ACCURACY)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.stop.target_accuracy", report),
                             "stop.target_accuracy: the best version is that of another "
                             "stop.metric; expected stop.target for that, or metric: accuracy");
}

void cn_profile_check_stop(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const char *key = stop_key(job);
    const struct cn_data_paths *data = cn_profile_data(&profile->settings, job->data_set);
    struct cn_mark mark;

    if (job->target_accuracy > 0 && job->loss != CN_LOSS_CROSS_ENTROPY) {
        mark = cn_profile_place(profile, "job.stop.target_accuracy", report);
        cn_diagnostics_error(
            report, mark,
            "stop.target_accuracy: only 'loss: cross_entropy' has an accuracy; expected "
            "it or stop.patience");
    }
    check_metric(profile, report);
    check_target(profile, report);
    if (cn_job_may_stop(job) && job->held_out <= 0 && !job->central_set[0] &&
        !(data && data->held_out[0])) {
        mark = cn_profile_place(profile, key, report);
        cn_diagnostics_error(report, mark,
                             "%s: nothing to measure on; expected data.held_out or central.set",
                             key + 4);
    }
}

void cn_profile_check_trust(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const char *key = stop_key(job);

    if (job->metric > CN_METRIC_LOSS && !job->central_set[0])
        cn_diagnostics_error(report, cn_profile_place(profile, "job.stop.metric", report),
                             "stop.metric: of what boards measure themselves only accuracy and "
                             "loss are compared; expected central.set or one of these");
    if (!cn_job_may_stop(job) || job->central_set[0] || job->trust_boards)
        return;
    struct cn_mark mark = cn_profile_place(profile, key, report);
    cn_diagnostics_error(
        report, mark,
        "%s: without central.set the boards' own figures would end the run, and one "
        "that lies could; expected central.set or stop.trust_boards: true",
        key + 4);
}
