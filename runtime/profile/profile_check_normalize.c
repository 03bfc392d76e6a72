// Checks server.normalize, which compares groups by their steps, against a job's other keys.
#include "runtime/profile/profile_private.h"

void cn_profile_check_normalize(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (job->server.normalize == CN_NORMALIZE_OFF)
        return;
    if (job->rules.optimizer != CN_OPTIMIZER_SGD)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.server.normalize", report),
                             "server.normalize: steps of adam and adamw have no length that can be "
                             "compared; expected train.optimizer: sgd, or off");
    if (job->robust.rule != CN_ROBUST_NONE)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.server.normalize", report),
                             "server.normalize: a robust rule combines whole updates; expected "
                             "robust.rule: none, or off");
    if (job->up.mode != CN_UPDATE_AUTO)
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.server.normalize", report),
                               "server.normalize: all groups do train.local_steps; they differ "
                               "with update.up.mode: auto and train.local_steps_max only");
}
