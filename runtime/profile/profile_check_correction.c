// Checks train.correction: control variates have a meaning in few kinds of rounds only.
#include "runtime/profile/profile_private.h"

// A condition for control variates, and the key and text of the message if it does not hold.
struct condition {
    bool holds;
    const char *key, *text;
};

// Reports at the key, or at train.correction if the key has its default.
static void report_condition(const struct cn_profile *profile, const struct condition *condition,
                             struct cn_diagnostics *report)
{
    bool given = cn_profile_is_set(profile, condition->key);
    const char *place = given ? condition->key : "job.train.correction";

    cn_diagnostics_error(report, cn_profile_place(profile, place, report),
                         "%s: does not go with train.correction: scaffold: %s", condition->key + 4,
                         condition->text);
}

// The change of a control variate is computed from a whole update that the steps of plain gradient
// descent made. Each line of the table names what would make it something else.
static void check_conditions(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    enum cn_update_mode up = job->up.mode;
    const struct condition conditions[] = {
        {job->rules.optimizer == CN_OPTIMIZER_SGD, "job.train.optimizer",
         "its steps are no multiples of gradients; expected sgd"},
        {job->momentum <= 0 || !job->keep_optimizer, "job.train.keep_optimizer",
         "a round's change would have momentum of the round before; expected false, or "
         "train.momentum: 0"},
        {up == CN_UPDATE_RAW32 || up == CN_UPDATE_BF16 || up == CN_UPDATE_Q8, "job.update.up.mode",
         "updates that leave values out, or round them coarsely, tell no gradients; expected q8, "
         "bf16 or raw32"},
        {!cn_job_is_async(job), "job.rounds.mode",
         "groups of a version would have control variates of several versions; expected "
         "synchronous"},
        {job->robust.rule == CN_ROBUST_NONE, "job.robust.rule",
         "a rule judges updates, and control variates would still take all of each; expected none"},
        {job->trust_groups, "job.limits.trust_groups",
         "a group that lies moves the correction of all others without limit; expected true"},
        {job->server.optimizer == CN_SERVER_FEDAVG, "job.server.optimizer",
         "not tried together; expected fedavg"},
        {job->server.normalize == CN_NORMALIZE_OFF, "job.server.normalize",
         "not tried together; expected off"},
        {job->parallel.shard <= 1, "job.parallel.shard",
         "no member would have the whole gradient; expected none"},
        {job->parallel.kind == CN_PARALLEL_GIVEN, "job.parallel.kind",
         "auto may divide the gradient among members; expected given"},
        {job->parallel.lr_scaling == CN_LR_SCALING_NONE, "job.train.lr_scaling",
         "the gateway does not know the rates; expected none"},
        {job->pipeline.parts <= 1, "job.parallel.pipeline",
         "no member would have the whole gradient; expected none"},
    };

    for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
        if (!conditions[i].holds)
            report_condition(profile, &conditions[i], report);
}

void cn_profile_check_correction(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    if (profile->settings.job.correction.kind != CN_CORRECTION_NONE)
        check_conditions(profile, report);
}
