// Says which groups the round under way waits for, so that other jobs may have the rest.
#include "aggregator/run/asynchronous.h"
#include "aggregator/run/run_private.h"

cn_err cn_run_use_of(const struct cn_run *run, const char *group, enum cn_run_use *use)
{
    struct cn_ledger *ledger = run->config.ledger;
    struct cn_ledger_contribution found;
    bool selected;
    *use = CN_RUN_UNUSED;
    if (run->phase != CN_RUN_OPEN)
        return CN_OK;
    if (cn_job_is_async(run->config.job)) {
        *use = CN_RUN_AWAITED; // groups train all the time: they are free when a version is made
        return CN_OK;
    }
    cn_err err = cn_ledger_is_selected(ledger, run->round, group, &selected);
    if (err || !selected)
        return err;
    err = cn_ledger_find_contribution(ledger, run->round, group, &found);
    *use = err ? CN_RUN_AWAITED : CN_RUN_DONE;
    return err == CN_ENOTFOUND ? CN_OK : err;
}
