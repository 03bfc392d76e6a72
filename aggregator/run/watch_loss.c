// watch_loss.c - warns when a version is far worse than its parent.
#include <math.h>
#include <stdio.h>

#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"

#define LOSS_JUMP 3 // a rise of the loss by more than this times its scale is reported

static double mean_loss(const struct cn_ledger_metrics *metrics)
{
    return metrics->loss / (double)metrics->count;
}

// Returns the scale of the loss at this version: its magnitude. The loss that a model computes
// itself may go through 0 as it falls, so the scale is at least the magnitude of version 0's loss.
static double scale_of(const struct cn_run *run, const struct cn_ledger_version *parent)
{
    struct cn_ledger_version first = {0};
    double scale = fabs(mean_loss(&parent->central));

    if (run->config.job->loss == CN_LOSS_OUTPUT &&
        cn_ledger_find_version(run->config.ledger, 0, &first) == CN_OK && first.central.count)
        scale = fmax(scale, fabs(mean_loss(&first.central)));
    return scale;
}

void cn_run_watch_loss(struct cn_run *run, uint32_t number, const struct cn_ledger_metrics *metrics)
{
    struct cn_ledger_version parent = {0};

    run->warning[0] = '\0';
    if (!metrics)
        snprintf(run->warning, sizeof(run->warning),
                 "version %u: its loss on the central set is not finite", number);
    else if (number && cn_ledger_find_version(run->config.ledger, number - 1, &parent) == CN_OK &&
             parent.central.count &&
             mean_loss(metrics) - mean_loss(&parent.central) > LOSS_JUMP * scale_of(run, &parent))
        snprintf(run->warning, sizeof(run->warning),
                 "version %u: its loss on the central set is %.4g, that of version %u was %.4g",
                 number, mean_loss(metrics), number - 1, mean_loss(&parent.central));
    if (run->warning[0])
        cn_log(CN_LOG_WARN, "run", "%s", run->warning);
}
