// Checks a job's robust rule against its other keys.
#include <string.h>

#include "runtime/profile/profile_private.h"

static bool sorts(const struct cn_robust *robust)
{
    return robust->rule == CN_ROBUST_MEDIAN || robust->rule == CN_ROBUST_TRIMMED;
}

// Refuses rules that take the middle of each coordinate with top-k: groups send different
// coordinates, so the middle of most is zero.
static void check_mode(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    const char *rule = job->robust.rule == CN_ROBUST_MEDIAN ? "median" : "trimmed";

    if (!sorts(&job->robust) || (job->up.mode != CN_UPDATE_TOPK && job->up.mode != CN_UPDATE_AUTO))
        return;
    cn_diagnostics_error(report, cn_profile_place(profile, "job.robust.rule", report),
                         "robust.rule: %s with update.up.mode %s: each group sends other "
                         "coordinates, so the middle of most is zero; expected update.up.mode q8, "
                         "bf16 or raw32, or robust.rule multi_krum, rfa or cclip",
                         rule, job->up.mode == CN_UPDATE_TOPK ? "topk" : "auto, which may be topk");
}

static void check_quorum(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    uint32_t needed = cn_robust_needs(&job->robust);

    if (job->quorum < needed && !cn_profile_is_set(profile, "job.robust.short"))
        cn_diagnostics_error(
            report, cn_profile_place(profile, "job.rounds.quorum", report),
            "rounds.quorum: %u groups, but the robust rule needs %u to tolerate %u; expected %u or "
            "more, or robust.short: wait (rounds wait for %u) or clip (they take the capped mean)",
            job->quorum, needed, job->robust.tolerate, needed, needed);
    if (cn_job_updates_needed(job) > CN_ROBUST_MOST)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.rounds.quorum", report),
                             "rounds.quorum: %u groups; expected at most %d with a robust rule",
                             cn_job_updates_needed(job), CN_ROBUST_MOST);
}

// Reports keys that contradict the rule about groups that lie.
static void check_trust(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (job->trust_groups)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.limits.trust_groups", report),
                             "limits.trust_groups: true says that no group lies, and a robust rule "
                             "needs the caps; expected false, or robust.rule: none");
    if (job->up.mode == CN_UPDATE_SIGN)
        cn_diagnostics_warning(
            report, cn_profile_place(profile, "job.update.up.mode", report),
            "update.up.mode: with sign all values of an update have one size, so "
            "a robust rule sees less of it; another mode suits it");
}

static void check_mix(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    if (profile->settings.job.robust.mix != CN_ROBUST_MIX_NONE)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.robust.mix", report),
                             "robust.mix: has a meaning with a rule only; expected robust.rule "
                             "other than none");
}

void cn_profile_check_robust(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    if (profile->settings.job.robust.rule == CN_ROBUST_NONE) {
        check_mix(profile, report);
        return;
    }
    check_mode(profile, report);
    check_quorum(profile, report);
    check_trust(profile, report);
}
