#include "runtime/round/session_shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"
#include "runtime/round/session_sets.h"
#include "runtime/round/session_update.h"
#include "runtime/update/update.h"

#define STORE_MS 5000 // between two states that are gathered and stored

enum fingerprint { GRADIENT = 0x73680001, REPLICAS, CLIPPED, WEIGHTS, OPTIMIZER, SECOND };

bool cn_session_is_sharded(const struct cn_session *session)
{
    return session->plan.shards > 1;
}

static cn_err run(struct cn_collective *collective, enum cn_collective_kind kind,
                  const struct cn_set *set, float *data, size_t count, enum fingerprint what)
{
    const struct cn_collective_call call = {
        .kind = kind, .set = set, .data = data, .count = count, .fingerprint = what};

    return collective->ops->run(collective, &call);
}

static void own_share(const struct cn_session *session, size_t *first, size_t *count)
{
    *count = cn_reduce_share(cn_trainer_gradient_words(session->trainer), session->plan.shards,
                             session->plan.shard, first);
}

// --- a step ---

cn_err cn_session_reduce_share(struct cn_session *session, struct cn_collective *collective,
                               float *gradients, bool *finite)
{
    const struct cn_step_plan *plan = &session->plan;
    size_t total = cn_trainer_gradient_words(session->trainer), first, count;
    cn_err err;

    own_share(session, &first, &count);
    err =
        run(collective, CN_COLLECTIVE_REDUCE_SCATTER, &plan->together, gradients, total, GRADIENT);
    if (!err && plan->alike.size > 1)
        err = run(collective, CN_COLLECTIVE_ALL_REDUCE, &plan->alike, gradients + first, count,
                  REPLICAS);
    if (err)
        return err;
    *finite = true;
    for (size_t i = first; i < first + count; i++)
        *finite &= isfinite(gradients[i]) != 0;
    if (session->config.job->rules.clip > 0) // its norm is that of the whole gradient
        return run(collective, CN_COLLECTIVE_ALL_GATHER, &plan->together, gradients, total,
                   CLIPPED);
    memset(gradients, 0, first * sizeof(float)); // partial sums, which the optimizer must not check
    memset(gradients + first + count, 0, (total - first - count) * sizeof(float));
    return CN_OK;
}

// The values of a row that this board has are sent, the others come.
static cn_err gather_row(struct cn_session *session, struct cn_collective *collective, float *row,
                         float *in_order, enum fingerprint what)
{
    cn_err err;

    cn_trainer_to_gradient_order(session->trainer, row, in_order);
    err = run(collective, CN_COLLECTIVE_ALL_GATHER, &session->plan.together, in_order,
              cn_trainer_gradient_words(session->trainer), what);
    if (!err)
        cn_trainer_from_gradient_order(session->trainer, in_order, row);
    return err;
}

// The gradients' memory is free now, and is cleared for the next step.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective)
{
    float *weights, *gradients;
    cn_err err = cn_trainer_gradients(session->trainer, &gradients);
    cn_err returned;

    if (!err)
        err = cn_trainer_share_weights(session->trainer, &weights);
    if (err)
        return err;
    err = gather_row(session, collective, weights, gradients, WEIGHTS);
    returned = cn_trainer_return_weights(session->trainer);
    if (!err)
        err = returned;
    return err ? err : cn_trainer_discard(session->trainer);
}

// --- the held state ---

void cn_session_fold(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;

    held->step += session->ahead;
    held->samples += session->since.samples;
    held->train_loss += session->since.train_loss;
    held->cursor += session->since.cursor;
    session->ahead = 0;
    session->since = (struct cn_session_counts){0};
    cn_session_record_micro(session);
}

static cn_err gather_array(struct cn_session *session, struct cn_collective *collective,
                           cn_err (*get)(struct cn_trainer *trainer, float *row),
                           enum fingerprint what, float **fresh)
{
    float *in_order = NULL;
    cn_err err = cn_session_allocate(fresh, session->held.total);

    if (!err)
        err = cn_session_allocate(&in_order, cn_trainer_gradient_words(session->trainer));
    if (!err)
        err = get(session->trainer, *fresh);
    if (!err)
        err = gather_row(session, collective, *fresh, in_order, what);
    free(in_order);
    return err;
}

static void replace(float **old, float *fresh)
{
    free(*old);
    *old = fresh;
}

// held changes when everything has come, and not before.
cn_err cn_session_gather(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_checkpoint *held = &session->held;
    float *first = NULL, *second = NULL;
    cn_err err = gather_array(session, collective, cn_trainer_get_optimizer, OPTIMIZER, &first);

    if (!err && cn_trainer_has_second(session->trainer))
        err = gather_array(session, collective, cn_trainer_get_second, SECOND, &second);
    if (!err)
        err = cn_session_allocate(&held->weights, held->total);
    if (!err)
        err = cn_trainer_get_weights(session->trainer, held->weights);
    if (err) {
        free(first);
        free(second);
        return err;
    }
    replace(&held->optimizer, first);
    replace(&held->second, second);
    if (second)
        held->updates = cn_trainer_updates(session->trainer);
    session->let_go = false;
    cn_session_fold(session);
    return CN_OK;
}

// The state is on this board's disk: its arrays of the optimizer need not be in memory, too.
static cn_err store_and_let_go(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err;

    if (held->phase != CN_PHASE_TRAIN || !held->optimizer)
        return CN_OK;
    err = cn_session_save(session, 0);
    if (err || session->disk_full)
        return err;
    replace(&held->optimizer, NULL);
    replace(&held->second, NULL);
    session->let_go = true;
    return CN_OK;
}

bool cn_session_store_due(const struct cn_session *session)
{
    return cn_session_is_sharded(session) && session->plan.trains &&
           cn_platform_now_ms() - session->saved_ms >= STORE_MS;
}

cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective)
{
    cn_err err;

    session->saved_ms = cn_platform_now_ms();
    if (!cn_session_is_sharded(session) || !session->plan.trains)
        return CN_OK;
    err = cn_session_gather(session, collective);
    return err ? err : store_and_let_go(session);
}

static bool is_same_state(const struct cn_checkpoint *a, const struct cn_checkpoint *b)
{
    return a->run == b->run && a->phase == b->phase && a->round == b->round && a->step == b->step &&
           a->total == b->total;
}

cn_err cn_session_recall(struct cn_session *session)
{
    struct cn_checkpoint stored = {0};
    struct cn_diag diag;
    cn_err err;

    if (!session->let_go)
        return CN_OK;
    cn_diag_init(&diag);
    err = cn_checkpoint_load(session->config.store, session->layout->total,
                             cn_update_size_max(session->layout), &diag, &stored);
    if (!err && !is_same_state(&stored, &session->held))
        err = CN_ESTALE;
    if (err) {
        cn_log(CN_LOG_ERROR, "session", "the stored state of round %u, step %u is gone: %s",
               session->held.round, session->held.step, cn_err_text(err));
        cn_checkpoint_deinit(&stored);
        return err;
    }
    replace(&session->held.optimizer, stored.optimizer);
    replace(&session->held.second, stored.second);
    stored.optimizer = stored.second = NULL;
    cn_checkpoint_deinit(&stored);
    session->let_go = false;
    return CN_OK;
}

cn_err cn_session_take_share(struct cn_session *session)
{
    const struct cn_step_plan *plan = &session->plan;
    uint32_t shards = plan->trains ? plan->shards : 1;
    size_t first, count, total;
    cn_err err = cn_session_recall(session);

    if (!err && session->state_shards != shards)
        err = cn_session_reopen_trainer(session, shards);
    if (err)
        return err;
    total = cn_trainer_gradient_words(session->trainer);
    count = cn_reduce_share(total, shards, plan->trains ? plan->shard : 0, &first);
    err = cn_trainer_set_share(session->trainer, first, count);
    if (!err)
        err = cn_session_load_trainer(session);
    if (err || shards == 1)
        return err;
    cn_log(CN_LOG_INFO, "session",
           "shard %u of %u: %llu bytes of the optimizer's state, values %zu to %zu of %zu",
           plan->shard + 1, shards, (unsigned long long)cn_trainer_state_memory(session->trainer),
           first, first + count, total);
    return store_and_let_go(session);
}
