// Checks a job's asynchronous rounds against its other keys.
#include "runtime/profile/profile_private.h"

// A group has at most one update in a version, so a larger buffer would never be full.
static void check_buffer(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (job->async.buffer > job->quorum)
        cn_diagnostics_error(
            report, cn_profile_place(profile, "job.rounds.async.buffer", report),
            "rounds.async.buffer: %u updates of the %u groups of rounds.quorum; expected at most "
            "%u, since a group has one update in a version",
            job->async.buffer, job->quorum, job->quorum);
}

// Refuses a small buffer with a robust rule: its updates come from the fastest groups, and most of
// these could lie.
static void check_robust(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    uint32_t needed = 2 * job->robust.tolerate + 3, rule = cn_robust_needs(&job->robust);

    if (job->robust.rule == CN_ROBUST_NONE)
        return;
    if (needed < rule)
        needed = rule;
    if (cn_job_buffer(job) < needed)
        cn_diagnostics_error(
            report, cn_profile_place(profile, "job.robust.rule", report),
            "robust.rule: a version is made of %u updates (rounds.async.buffer), but in "
            "asynchronous rounds a rule needs %u to tolerate %u; expected %u or more, or "
            "rounds.mode: synchronous",
            cn_job_buffer(job), needed, job->robust.tolerate, needed);
    else
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.robust.rule", report),
                               "robust.rule: judges updates that began from several versions, so "
                               "an honest slow group looks like one that lies");
}

// Without a rate, the optimizer's own one is multiplied by buffer and divided by quorum.
static void check_rate(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (cn_profile_is_set(profile, "job.server.learning_rate") && cn_job_buffer(job) < job->quorum)
        cn_diagnostics_warning(
            report, cn_profile_place(profile, "job.server.learning_rate", report),
            "server.learning_rate: holds for each version, and these are made of %u updates in "
            "place of %u; left out, the optimizer's own rate is reduced as much",
            cn_job_buffer(job), job->quorum);
}

void cn_profile_check_async(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;

    if (!cn_job_is_async(job))
        return;
    check_buffer(profile, report);
    check_robust(profile, report);
    check_rate(profile, report);
    if (job->server.normalize != CN_NORMALIZE_OFF)
        cn_diagnostics_error(report, cn_profile_place(profile, "job.server.normalize", report),
                             "server.normalize: the steps of one version are compared, and updates "
                             "of asynchronous rounds began from several; expected off, or "
                             "rounds.mode: synchronous");
    if (cn_profile_is_set(profile, "job.rounds.over_select"))
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.rounds.over_select", report),
                               "rounds.over_select: has no effect; asynchronous rounds invite "
                               "every group that has no update in the version");
    if (job->up.mode == CN_UPDATE_AUTO)
        cn_diagnostics_warning(report, cn_profile_place(profile, "job.update.up.mode", report),
                               "update.up.mode: auto chooses by the time left until "
                               "rounds.deadline, and a group of an asynchronous run has more; "
                               "another mode suits it");
}
