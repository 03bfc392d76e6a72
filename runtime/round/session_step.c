#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session.h"
#include "runtime/round/session_update.h"

// The batches of a step follow from (round, step) alone, so a repeated step draws them again.
static uint64_t first_batch(const struct cn_session *session)
{
    return cn_session_steps_before(session) * session->config.job->accumulate;
}

static cn_err accumulate(struct cn_session *session, struct cn_metrics *metrics)
{
    const struct cn_job *job = session->config.job;
    uint64_t index = first_batch(session);
    cn_err err = CN_OK;

    for (uint32_t i = 0; i < job->accumulate && !err; i++) {
        cn_dataset_train_batch(session->dataset, index + i, job->batch, &session->batch);
        cn_trainer_draw(session->trainer,
                        ((index + i) * CN_GROUP_MAX + session->seat) * job->batch);
        err = cn_trainer_accumulate(session->trainer, &session->batch, metrics);
    }
    return err;
}

static cn_err reduce_and_apply(struct cn_session *session, struct cn_collective *collective,
                               double samples, double weight)
{
    float *gradients;
    cn_err err;

    err = cn_trainer_gradients(session->trainer, &gradients);
    if (err)
        return err;
    err = cn_all_reduce(collective, CN_REDUCE_SUM, gradients, session->held.total);
    if (err)
        return err;
    return cn_trainer_apply_weighted(session->trainer, samples, weight);
}

// The sum of losses is kept so that divided by the samples it gives the mean of the weighted rows.
static void count_step(struct cn_session *session, float samples, float loss, float weight)
{
    struct cn_checkpoint *held = &session->held;

    session->step_loss = (double)loss / (double)(weight > 0 ? weight : 1);
    held->step++;
    held->samples += (uint64_t)samples;
    held->train_loss += weight == samples ? (double)loss : session->step_loss * (double)samples;
}

static void name_fault(struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    char what[160];

    if (!cn_trainer_find_fault(session->trainer, what, sizeof(what)))
        cn_log(CN_LOG_ERROR, "session", "round %u, step %u: %s is not finite", held->round,
               held->step + 1, what);
}

static void add_step_time(struct cn_session *session, double elapsed_s)
{
    session->step_s += session->step_s > 0 ? (elapsed_s - session->step_s) / 8 : elapsed_s;
}

cn_err cn_session_step(struct cn_session *session, struct cn_collective *collective,
                       struct cn_step_flags *flags)
{
    enum { SAMPLES, LOSS, DIVERGED, KNOCKED, ABANDON, WEIGHT, FIELDS };
    uint32_t fields = session->weighted ? FIELDS : WEIGHT;
    struct cn_metrics metrics = {0};
    uint64_t begun_us = cn_platform_now_us();
    float sums[FIELDS];
    cn_err local, err;

    local = accumulate(session, &metrics);
    if (local && local != CN_EDIVERGED) {
        err = cn_trainer_discard(session->trainer);
        return err ? err : local;
    }
    sums[SAMPLES] = (float)metrics.count;
    sums[WEIGHT] = (float)metrics.weight;
    sums[LOSS] = local ? 0 : (float)metrics.loss;
    sums[DIVERGED] = local ? 1 : 0;
    sums[KNOCKED] = flags->knocked ? 1 : 0;
    sums[ABANDON] = flags->abandon ? 1 : 0;
    err = cn_all_reduce(collective, CN_REDUCE_SUM, sums, fields);
    if (err)
        goto discard;
    flags->knocked = sums[KNOCKED] > 0;
    flags->abandon = sums[ABANDON] > 0;
    err = sums[DIVERGED] > 0 ? CN_EDIVERGED : CN_OK;
    if (err || flags->abandon)
        goto discard;
    if (fields == WEIGHT)
        sums[WEIGHT] = sums[SAMPLES];
    err = reduce_and_apply(session, collective, (double)sums[SAMPLES], (double)sums[WEIGHT]);
    if (err)
        goto discard;
    count_step(session, sums[SAMPLES], sums[LOSS], sums[WEIGHT]);
    add_step_time(session, 1e-6 * (double)(cn_platform_now_us() - begun_us));
    return CN_OK;

discard:
    if (err == CN_EDIVERGED)
        name_fault(session);
    local = cn_trainer_discard(session->trainer);
    return err ? err : local;
}
