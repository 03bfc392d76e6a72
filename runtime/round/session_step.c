#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session.h"
#include "runtime/round/session_sets.h"
#include "runtime/round/session_shards.h"
#include "runtime/round/session_update.h"

// The batches of a step follow from the state alone, so a repeated step draws them again: of own
// samples by (round, step), of shared ones by what the group has drawn.
static uint64_t first_batch(const struct cn_session *session)
{
    if (session->config.job->parallel.scope == CN_SCOPE_SHARED)
        return session->held.cursor + session->since.cursor + session->plan.before;
    return cn_session_steps_before(session) * session->plan.micro;
}

static cn_err accumulate(struct cn_session *session, struct cn_metrics *metrics)
{
    const struct cn_job *job = session->config.job;
    uint64_t index = first_batch(session);
    cn_err err = CN_OK;

    for (uint32_t i = 0; session->plan.trains && i < session->plan.micro && !err; i++) {
        cn_dataset_train_batch(session->dataset, index + i, job->batch, &session->batch);
        cn_trainer_draw(session->trainer,
                        ((index + i) * CN_GROUP_MAX + session->seat) * job->batch);
        err = cn_trainer_accumulate(session->trainer, &session->batch, metrics);
    }
    return err;
}

// finite is false when a sum is not; who reduces all of them finds that out by itself.
static cn_err reduce_gradients(struct cn_session *session, struct cn_collective *collective,
                               bool *finite)
{
    struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE,
        .how = CN_REDUCE_SUM,
        .set = session->plan.whole ? NULL : &session->plan.train,
        .count = session->held.total,
    };
    float *gradients;
    cn_err err;

    if (!session->plan.trains)
        return CN_OK;
    err = cn_trainer_gradients(session->trainer, &gradients);
    if (err)
        return err;
    if (cn_session_is_sharded(session))
        return cn_session_reduce_share(session, collective, gradients, finite);
    call.data = gradients;
    return collective->ops->run(collective, &call);
}

// The sum of losses is kept so that divided by the samples it gives the mean of the weighted rows.
static void count_step(struct cn_session *session, float samples, float loss, float weight)
{
    session->step_loss = (double)loss / (double)(weight > 0 ? weight : 1);
    cn_session_stepped(session);
    session->ahead++;
    if (!session->plan.trains)
        return;
    session->since.cursor += session->plan.total;
    session->since.samples += (uint64_t)samples;
    session->since.train_loss +=
        weight == samples ? (double)loss : session->step_loss * (double)samples;
    if (!cn_session_is_sharded(session))
        cn_session_fold(session);
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

// What the members tell each other once they hold the reduced gradients: all that the optimizer
// needs besides, and whether it is to run. Who has the sums of a step knows that every member has
// its gradients, so either all survivors can apply it or none has.
enum vote { SAMPLES, LOSS, DIVERGED, KNOCKED, ABANDON, STORE, WEIGHT, VOTES };

static cn_err vote(const struct cn_session *session, struct cn_collective *collective,
                   struct cn_step_flags *flags, float sums[VOTES])
{
    cn_err err;

    sums[KNOCKED] = flags->knocked ? 1 : 0;
    sums[ABANDON] = flags->abandon ? 1 : 0;
    sums[STORE] = cn_session_store_due(session) ? 1 : 0;
    err = cn_all_reduce(collective, CN_REDUCE_SUM, sums, session->weighted ? VOTES : WEIGHT);
    if (err)
        return err;
    flags->knocked = sums[KNOCKED] > 0;
    flags->abandon = sums[ABANDON] > 0;
    if (!session->weighted)
        sums[WEIGHT] = sums[SAMPLES];
    return sums[DIVERGED] > 0 ? CN_EDIVERGED : CN_OK;
}

// The sums of a step that this member takes part in. A member whose loss is not finite still does:
// its vote says so.
static cn_err reduce_step(struct cn_session *session, struct cn_collective *collective,
                          struct cn_step_flags *flags, float sums[VOTES])
{
    struct cn_metrics metrics = {0};
    cn_err local = accumulate(session, &metrics);
    bool finite = true;
    cn_err err;

    if (local && local != CN_EDIVERGED)
        return local;
    err = reduce_gradients(session, collective, &finite);
    if (err)
        return err;
    sums[SAMPLES] = (float)metrics.count;
    sums[WEIGHT] = (float)metrics.weight;
    sums[LOSS] = local ? 0 : (float)metrics.loss;
    sums[DIVERGED] = local || !finite ? 1 : 0;
    return vote(session, collective, flags, sums);
}

cn_err cn_session_step(struct cn_session *session, struct cn_collective *collective,
                       struct cn_step_flags *flags)
{
    uint64_t begun_us = cn_platform_now_us();
    float sums[VOTES];
    cn_err err = cn_session_place(session, collective);
    cn_err discarded;

    if (!err)
        err = reduce_step(session, collective, flags, sums);
    if (!err && !flags->abandon && session->plan.trains)
        err = cn_trainer_apply_weighted(session->trainer, (double)sums[SAMPLES],
                                        (double)sums[WEIGHT]);
    if (!err && !flags->abandon && session->plan.trains && cn_session_is_sharded(session))
        err = cn_session_gather_weights(session, collective);
    if (err || flags->abandon) {
        if (err == CN_EDIVERGED)
            name_fault(session);
        discarded = cn_trainer_discard(session->trainer);
        return err ? err : discarded;
    }
    count_step(session, sums[SAMPLES], sums[LOSS], sums[WEIGHT]);
    add_step_time(session, 1e-6 * (double)(cn_platform_now_us() - begun_us));
    return sums[STORE] > 0 ? cn_session_store(session, collective) : CN_OK;
}
