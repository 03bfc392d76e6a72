// profile_check_pipeline.c - what parallel.pipeline needs, and what does not go with it.
#include "runtime/base/words.h"
#include "runtime/profile/profile_private.h"

static const char *const not_yet[] = {"job.parallel.balance", "job.parallel.train",
                                      "job.parallel.measure", "job.train.lr_scaling"};

static bool is_used(const struct cn_job *job, size_t key)
{
    const struct cn_parallel *parallel = &job->parallel;
    const bool used[] = {parallel->balance, parallel->train[0] != 0, parallel->measure[0] != 0,
                         parallel->lr_scaling != CN_LR_SCALING_NONE};

    return used[key];
}

static void check_cut(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_pipeline_settings *pipeline = &profile->settings.job.pipeline;
    uint32_t cuts = (uint32_t)cn_words_count(pipeline->cut);
    uint32_t wanted = pipeline->parts > 1 ? pipeline->parts - 1 : 0;

    if (cuts && profile->settings.job.parallel.kind == CN_PARALLEL_AUTO) {
        cn_diagnostics_error(report, cn_profile_place(profile, "job.parallel.cut", report),
                             "parallel.cut: parallel.kind auto chooses where the model is cut; "
                             "expected one of the two");
        return;
    }
    if (!cuts || cuts == wanted)
        return;
    cn_diagnostics_error(report, cn_profile_place(profile, "job.parallel.cut", report),
                         "parallel.cut: %u name%s %u parts; expected parallel.pipeline: %u, or "
                         "%u name%s",
                         cuts, cuts == 1 ? " makes" : "s make", cuts + 1, cuts + 1, wanted,
                         wanted == 1 ? "" : "s");
}

void cn_profile_check_pipeline(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    const struct cn_job *job = &profile->settings.job;
    uint32_t shards = job->parallel.shard > 1 ? job->parallel.shard : 1;
    struct cn_mark mark;

    check_cut(profile, report);
    if (job->pipeline.parts <= 1)
        return;
    mark = cn_profile_place(profile, "job.parallel.pipeline", report);
    if (job->pipeline.parts * shards > CN_GROUP_MAX)
        cn_diagnostics_error(
            report, mark,
            "parallel.pipeline: %u parts in %u shards need %u members; expected at "
            "most %u",
            job->pipeline.parts, shards, job->pipeline.parts * shards, CN_GROUP_MAX);
    if (!cn_profile_is_set(profile, "job.data.scope")) // the default must not let anything travel
        cn_diagnostics_error(report, mark,
                             "parallel.pipeline: data.scope is missing; expected shared, where all "
                             "boards have the same samples, or own: activations and labels of each "
                             "board's samples then go to other boards of its group");
    if (job->parallel.kind == CN_PARALLEL_AUTO)
        cn_diagnostics_error(report, mark,
                             "parallel.pipeline: parallel.kind auto chooses it; expected one of "
                             "the two");
    for (size_t i = 0; i < sizeof(not_yet) / sizeof(not_yet[0]); i++) {
        if (!is_used(job, i))
            continue;
        mark = cn_profile_place(profile, not_yet[i], report);
        cn_diagnostics_error(report, mark,
                             "%s: not together with parallel.pipeline in this version; expected "
                             "one of the two",
                             not_yet[i] + 4);
    }
}
