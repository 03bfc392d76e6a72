// Checks train.learning_rate against the optimizer: a rate that suits one is too large for another.
#include "runtime/profile/profile_private.h"

#define ADAM_MOST 0.01 // a step of Adam moves each weight by about the rate

void cn_profile_check_rate(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const char *key = "job.train.learning_rate";
    bool given = cn_profile_is_set(profile, key);

    if (job->rules.optimizer == CN_OPTIMIZER_SGD || job->learning_rate <= ADAM_MOST)
        return;
    cn_diagnostics_warning(
        report, cn_profile_place(profile, given ? key : "job.train.optimizer", report),
        "train.learning_rate: %.9g%s moves each weight by about that much in each step of %s, "
        "mostly too far; 0.001 is usual",
        job->learning_rate, given ? "" : ", the default,",
        job->rules.optimizer == CN_OPTIMIZER_ADAM ? "adam" : "adamw");
}
