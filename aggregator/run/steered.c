// Follows what people ask of the run while it goes on (steering.h).
#include "aggregator/run/run_private.h"

cn_err cn_run_follow_steering(struct cn_run *run)
{
    return cn_steering_load(run->config.ledger, &run->steering);
}

bool cn_run_opens_rounds(const struct cn_run *run)
{
    return run->steering.pause == CN_RUN_PAUSE_NONE && !run->steering.leaving && !run->held;
}

void cn_run_hold(struct cn_run *run, bool held)
{
    run->held = held;
}

bool cn_run_is_held(struct cn_run *run, uint64_t now_ms)
{
    if (run->steering.pause != CN_RUN_PAUSE_NOW) {
        run->held_ms = 0;
        return false;
    }
    if (run->held_ms)
        run->deadline_ms += now_ms - run->held_ms;
    run->held_ms = now_ms;
    return true;
}

cn_err cn_run_recover_deadline(struct cn_run *run)
{
    struct cn_steered_round steered;
    cn_err err = cn_steering_of_round(run->config.ledger, run->round, &steered);
    if (!err)
        run->deadline_ms += steered.extended_ms;
    return err;
}

void cn_run_extend_round(struct cn_run *run, uint64_t extend_ms)
{
    run->deadline_ms += extend_ms;
    if (run->config.changed)
        run->config.changed(run->config.context);
}

const char *cn_run_refuse_close(const struct cn_run *run)
{
    const struct cn_robust *robust = &run->config.job->robust;
    if (run->phase != CN_RUN_OPEN)
        return "no round is open";
    if (cn_job_is_async(run->config.job))
        return "the run is asynchronous: rounds.async.buffer says how many updates make a version";
    if (run->accepted == 0)
        return "the round has no update: no version can be made of it";
    if (robust->rule != CN_ROBUST_NONE && robust->when_short == CN_ROBUST_SHORT_WAIT &&
        run->accepted < cn_robust_needs(robust))
        return "the round has fewer updates than robust.rule needs (robust.short: wait)";
    return NULL;
}
