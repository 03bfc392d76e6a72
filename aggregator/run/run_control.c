// Offers boards the server's control variate for the round that is open.

#include "aggregator/ledger/control_epochs.h"
#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"

cn_err cn_run_open_control(struct cn_run *run)
{
    const struct cn_model *newest = cn_model_store_newest(run->config.models);
    const float *server = NULL;
    struct cn_control_epoch epoch;
    char why[CN_CONTROL_TEXT];

    run->control = (struct cn_round_control){0};
    if (run->config.job->correction.kind == CN_CORRECTION_NONE)
        return cn_model_store_offer(run->config.models, NULL, &run->control);
    cn_err err = cn_control_epoch_open(run->config.ledger, run->round, &epoch, why);
    if (err)
        return err;
    if (why[0] && run->round > 1)
        cn_log(CN_LOG_INFO, "run", "round %u: the control variates of all groups begin again: %s",
               run->round, why);
    if (epoch.begun < run->round && newest->state && newest->state_rows)
        server = newest->state +
                 (newest->state_rows - 1) * cn_model_store_layout(run->config.models)->total;
    err = cn_model_store_offer(run->config.models, server, &run->control);
    run->control.epoch = epoch.begun;
    return err;
}
