#include "runtime/round/epoch/epoch_say.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "runtime/base/log.h"

void cn_epoch_say_version(const struct cn_session *session)
{
    const struct cn_scores *scores = cn_session_scores(session);
    const struct {
        const char *name;
        double value;
    } measures[] = {
        {"loss", scores->loss}, {"accuracy", scores->accuracy}, {"top-5", scores->top5},
        {"F1", scores->f1},     {"MAE", scores->mae},           {"perplexity", scores->perplexity},
    };
    char text[160] = "";
    size_t used = 0;

    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++)
        if (isfinite(measures[i].value) && used < sizeof(text))
            used +=
                (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %.4g",
                                 used ? ", " : ": held-out ", measures[i].name, measures[i].value);
    cn_log(CN_LOG_INFO, "epoch", "version %u%s (%" PRIu64 " samples)",
           cn_session_held(session)->version, text, scores->rows);
}

void cn_epoch_say_other(const struct cn_session *session)
{
    cn_log(CN_LOG_WARN, "epoch",
           "round %u: another part of the group has delivered it: the steps done here do not count "
           "again",
           cn_session_held(session)->round);
}

void cn_epoch_say_verdict(const struct cn_session *session, const char *why,
                          enum cn_verdict verdict)
{
    const struct cn_checkpoint *held = cn_session_held(session);

    switch (verdict) {
    case CN_VERDICT_ACCEPTED:
        cn_log(CN_LOG_INFO, "epoch", "round %u: update of %zu bytes accepted", held->round,
               held->frame_size);
        return;
    case CN_VERDICT_REJECTED:
        cn_log(CN_LOG_WARN, "epoch", "round %u: update of %zu bytes rejected: %s", held->round,
               held->frame_size, why[0] ? why : "the log of the group's leader says why");
        return;
    case CN_VERDICT_LATE:
        cn_log(CN_LOG_WARN, "epoch", "round %u: update of %zu bytes late: %s", held->round,
               held->frame_size, why[0] ? why : "the round closed without it");
        return;
    }
}
