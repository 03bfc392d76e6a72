// Keys that mean something only together with another key.
#include <string.h>

#include "runtime/profile/profile_private.h"

static bool has_sgd(const struct cn_job *job)
{
    return job->rules.optimizer == CN_OPTIMIZER_SGD;
}

static bool has_adam(const struct cn_job *job)
{
    return !has_sgd(job);
}

static bool has_steps(const struct cn_job *job)
{
    return job->rules.schedule == CN_SCHEDULE_STEP;
}

static bool has_schedule(const struct cn_job *job)
{
    return job->rules.schedule != CN_SCHEDULE_CONSTANT;
}

static bool has_huber(const struct cn_job *job)
{
    return job->loss == CN_LOSS_HUBER;
}

static bool has_classes(const struct cn_job *job)
{
    return job->loss == CN_LOSS_CROSS_ENTROPY;
}

static bool has_window(const struct cn_job *job)
{
    return job->rules.window != 0;
}

static bool has_server_momentum(const struct cn_job *job)
{
    return job->server.optimizer == CN_SERVER_FEDAVGM ||
           job->server.optimizer == CN_SERVER_NESTEROV;
}

static bool has_server_betas(const struct cn_job *job)
{
    return job->server.optimizer == CN_SERVER_FEDADAM || job->server.optimizer == CN_SERVER_FEDYOGI;
}

static bool has_server_squares(const struct cn_job *job)
{
    return has_server_betas(job) || job->server.optimizer == CN_SERVER_FEDADAGRAD;
}

static bool has_async_rounds(const struct cn_job *job)
{
    return job->async.mode == CN_ROUNDS_ASYNCHRONOUS;
}

static bool may_send_signs(enum cn_update_mode mode)
{
    return mode == CN_UPDATE_TOPK || mode == CN_UPDATE_SIGN || mode == CN_UPDATE_AUTO;
}

static bool has_signs(const struct cn_job *job)
{
    return may_send_signs(job->up.mode) || may_send_signs(job->down.mode);
}

static bool has_robust_rule(const struct cn_job *job)
{
    return job->robust.rule != CN_ROBUST_NONE;
}

// Keys that have an effect only together with another key. Without it they are no mistake, because
// one file of a profile may set the optimizer and another file its momentum.
static const struct {
    const char *path;
    bool (*has_meaning)(const struct cn_job *job);
    const char *wanted;
} companions[] = {
    {"job.train.momentum", has_sgd, "train.optimizer: sgd"},
    {"job.train.nesterov", has_sgd, "train.optimizer: sgd"},
    {"job.train.beta1", has_adam, "train.optimizer: adam or adamw"},
    {"job.train.beta2", has_adam, "train.optimizer: adam or adamw"},
    {"job.train.epsilon", has_adam, "train.optimizer: adam or adamw"},
    {"job.train.schedule.every", has_steps, "train.schedule.kind: step"},
    {"job.train.schedule.factor", has_schedule, "train.schedule.kind: step or cosine"},
    {"job.loss.delta", has_huber, "loss.kind: huber"},
    {"job.loss.weights", has_classes, "loss.kind: cross_entropy"},
    {"job.loss.ignore", has_classes, "loss.kind: cross_entropy"},
    {"job.loss.smoothing", has_classes, "loss.kind: cross_entropy"},
    {"job.update.small", has_signs, "update.up.mode or update.down.mode: topk or sign"},
    {"job.data.stride", has_window, "data.window"},
    {"job.server.momentum", has_server_momentum, "server.optimizer: fedavgm or nesterov"},
    {"job.server.beta1", has_server_betas, "server.optimizer: fedadam or fedyogi"},
    {"job.server.beta2", has_server_betas, "server.optimizer: fedadam or fedyogi"},
    {"job.server.epsilon", has_server_squares, "server.optimizer: fedadagrad, fedadam or fedyogi"},
    {"job.rounds.async.buffer", has_async_rounds, "rounds.mode: asynchronous"},
    {"job.rounds.async.max_staleness", has_async_rounds, "rounds.mode: asynchronous"},
    {"job.rounds.async.wait", has_async_rounds, "rounds.mode: asynchronous"},
    {"job.robust.tolerate", has_robust_rule, "robust.rule other than none"},
    {"job.robust.short", has_robust_rule, "robust.rule other than none"},
};

#define COMPANIONS (sizeof(companions) / sizeof(companions[0]))

bool cn_profile_has_meaning(const char *path, const struct cn_job *job)
{
    for (size_t i = 0; i < COMPANIONS; i++)
        if (strcmp(companions[i].path, path) == 0)
            return companions[i].has_meaning(job);
    return true;
}

void cn_profile_check_companions(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    for (size_t i = 0; i < COMPANIONS; i++) {
        const char *path = companions[i].path;

        if (!cn_profile_is_set(profile, path) || companions[i].has_meaning(&profile->settings.job))
            continue;
        cn_diagnostics_warning(report, cn_profile_place(profile, path, report),
                               "%s: has no effect; it means something with %s only", path + 4,
                               companions[i].wanted);
    }
}
