// watch_loss.c - warns when a version is far worse than its parent.
#include <stdio.h>

#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"

#define LOSS_JUMP 4 // a version with more than this times its parent's loss is reported

static double mean_loss(const struct cn_ledger_metrics *metrics)
{
    return metrics->loss / (double)metrics->count;
}

void cn_run_watch_loss(struct cn_run *run, uint32_t number, const struct cn_ledger_metrics *metrics)
{
    struct cn_ledger_version parent = {0};

    run->warning[0] = '\0';
    if (!metrics)
        snprintf(run->warning, sizeof(run->warning),
                 "version %u: its loss on the central set is not finite", number);
    else if (number && cn_ledger_find_version(run->config.ledger, number - 1, &parent) == CN_OK &&
             parent.central.count && mean_loss(metrics) > LOSS_JUMP * mean_loss(&parent.central))
        snprintf(run->warning, sizeof(run->warning),
                 "version %u: its loss on the central set is %.4g, that of version %u was %.4g",
                 number, mean_loss(metrics), number - 1, mean_loss(&parent.central));
    if (run->warning[0])
        cn_log(CN_LOG_WARN, "run", "%s", run->warning);
}
