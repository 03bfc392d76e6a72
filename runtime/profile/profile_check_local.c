// Checks the keys about tensors that are never sent against a job's other keys.
#include "runtime/profile/profile_private.h"

// Local tensors exist only in the residual, so they need one that keeps them exactly.
static void check_residual(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    if (profile->settings.job.options.residual == CN_RESIDUAL_BF16)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.update.residual", report),
                             "update.residual: bf16 would round the tensors of update.local in "
                             "each round; expected fp32");
}

static void refuse_central(const struct cn_profile *profile, const char *key,
                           struct cn_diagnostics *report)
{
    cn_diagnostics_error(report, cn_profile_place(profile, key, report),
                         "%s: central.set measures versions whose update.local tensors nobody "
                         "trains; expected none of the two, or no central.set",
                         key + 4);
}

// In every version, the tensors of update.local are those of version 0. So what the gateway
// measures says little.
static void check_central(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (!job->central_set[0])
        return;
    if (job->target_accuracy > 0)
        refuse_central(profile, "job.stop.target_accuracy", report);
    else if (job->target != 0)
        refuse_central(profile, "job.stop.target", report);
    else if (job->patience)
        refuse_central(profile, "job.stop.patience", report);
    else if (job->gate.accuracy > 0 || job->gate.loss > 0)
        refuse_central(profile, job->gate.accuracy > 0 ? "job.gate.accuracy" : "job.gate.loss",
                       report);
    else
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.central.set", report),
                               "central.set: versions are measured there with the update.local "
                               "tensors of version 0, which nobody trains; what groups measure "
                               "is with their own");
}

void cn_profile_check_local(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (job->options.frozen == CN_FROZEN_LOCAL && !job->rules.freeze[0])
        cn_diagnostics_error(report, cn_profile_place(profile, "job.update.frozen", report),
                             "update.frozen: local, but nothing is frozen; expected train.freeze, "
                             "too");
    if (!job->options.local[0])
        return;
    check_residual(profile, report);
    check_central(profile, report);
}
