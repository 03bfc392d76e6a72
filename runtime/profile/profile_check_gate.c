// profile_check_gate.c - refuses settings that contradict the keys of the gate.
#include "runtime/profile/profile_private.h"

void cn_profile_check_gate(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const char *key = job->gate.accuracy > 0 ? "job.gate.accuracy" : "job.gate.loss";
    bool lacks_accuracy = job->gate.accuracy > 0 && job->loss != CN_LOSS_CROSS_ENTROPY;

    if ((job->gate.accuracy > 0 || job->gate.loss > 0) && (!job->central_set[0] || lacks_accuracy))
        cn_diagnostics_error(
            report, cn_profile_place(profile, key, report), "%s: nothing to measure; expected %s",
            key + 4, lacks_accuracy ? "loss: cross_entropy, or gate.loss" : "central.set, too");
}
