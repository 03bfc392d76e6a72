#include "runtime/group/purpose.h"
#include "runtime/round/session/session_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/update/update.h"

bool cn_session_is_sharded(const struct cn_session *session)
{
    return session->plan.shards > 1 || cn_session_is_cut(session);
}

static bool has_stage(const struct cn_session *session, enum cn_stage stage)
{
    return cn_session_is_sharded(session) && cn_trainer_stage(session->trainer) >= stage;
}

static cn_err run(struct cn_collective *collective, enum cn_collective_kind kind,
                  const struct cn_set *set, void *data, size_t count, enum cn_purpose what)
{
    const struct cn_collective_call call = {
        .kind = kind, .set = set, .data = data, .count = count, .fingerprint = what};

    return collective->ops->run(collective, &call);
}

// Finds the piece of a share in a bucket that begins at `first`.
static struct cn_trainer_piece piece_of(const struct cn_session *session, uint32_t bucket,
                                        size_t first, uint32_t shards, uint32_t shard)
{
    struct cn_trainer_piece piece;

    piece.count = cn_reduce_share(cn_trainer_bucket_words(session->trainer, bucket), shards, shard,
                                  &piece.first);
    piece.first += first;
    return piece;
}

struct cn_trainer_piece cn_session_own_piece(const struct cn_session *session, uint32_t bucket,
                                             size_t first)
{
    return piece_of(session, bucket, first, session->plan.shards, session->plan.shard);
}

// --- a step ---

static cn_err end_exchange(void *context, uint64_t ticket)
{
    struct cn_session *session = context;
    uint64_t begun_us = cn_platform_now_us();
    cn_err err = CN_OK;

    if (ticket)
        err = cn_reducer_wait(session->reducer, (struct cn_work){ticket});
    session->reducer->waited_us += cn_platform_now_us() - begun_us;
    return err;
}

static enum cn_chain_act act_of(enum cn_exchange_kind kind)
{
    switch (kind) {
    case CN_EXCHANGE_GATHER:
        return CN_CHAIN_FETCH;
    case CN_EXCHANGE_REDUCE:
        return CN_CHAIN_REDUCE;
    default:
        return CN_CHAIN_ADD;
    }
}

static cn_err begin_exchange(void *context, enum cn_exchange_kind kind, uint32_t bucket,
                             float *data, size_t count, uint64_t *ticket)
{
    struct cn_session *session = context;
    struct cn_reducer *reducer = session->reducer;
    uint32_t batch = session->sharing.batch;
    struct cn_collective_call call = cn_reducer_call(
        reducer, data, count, cn_purpose_at(CN_PURPOSE_SHARE_BUCKET, bucket + (batch << 8)));
    bool cut = cn_session_is_cut(session);
    struct cn_work work;
    cn_err err;

    *ticket = 0;
    if (kind == CN_EXCHANGE_REPLICAS && session->plan.replica_set.size < 2)
        return CN_OK;
    call.set = kind == CN_EXCHANGE_REPLICAS ? &session->plan.replica_set : &session->plan.shard_set;
    if (kind == CN_EXCHANGE_REDUCE)
        call.kind = CN_COLLECTIVE_REDUCE_SCATTER;
    if (kind == CN_EXCHANGE_GATHER) {
        call.kind = CN_COLLECTIVE_ALL_GATHER;
        call.wire = CN_FLOAT32; // all members must have the same weights to the bit
    }
    if (cut)
        cn_session_note_ended(session);
    err = cn_reducer_post(reducer, &call, &work);
    if (err == CN_EAGAIN) { // messages of a chain wait in the queue, too
        err = end_exchange(session, reducer->newest.number);
        if (!err && cut)
            cn_session_note_ended(session);
        if (!err)
            err = cn_reducer_post(reducer, &call, &work);
    }
    if (!err && cut)
        cn_session_note_call(session, act_of(kind), batch, work, count * sizeof(*data));
    *ticket = err ? 0 : work.number;
    return err;
}

struct cn_trainer_exchange cn_session_exchange(struct cn_session *session)
{
    return (struct cn_trainer_exchange){begin_exchange, end_exchange, session};
}

// Returns the number of exchanges in a step: the largest number of micro-batches of a member.
// Members with fewer take part in all of them.
static uint32_t passes_of(const struct cn_session *session)
{
    uint32_t most = session->plan.micro;

    for (uint32_t p = 0; p < session->plan.train.size; p++)
        most = session->planning.micro[p] > most ? session->planning.micro[p] : most;
    return most;
}

bool cn_session_shares_gradients(const struct cn_session *session)
{
    return session->plan.trains && has_stage(session, CN_STAGE_GRADIENTS);
}

cn_err cn_session_accumulate_shared(struct cn_session *session, uint64_t first,
                                    struct cn_metrics *metrics)
{
    const struct cn_trainer_exchange exchange = cn_session_exchange(session);
    uint32_t passes = passes_of(session);
    cn_err err = session->reducer ? CN_OK : CN_EINVAL, diverged = CN_OK;

    for (uint32_t i = 0; !err && i < passes; i++) {
        const struct cn_batch *batch = NULL;

        session->sharing.batch = i;
        if (i < session->plan.micro) {
            batch = cn_reader_take(session->data.reader, first + i);
            cn_trainer_draw(session->trainer,
                            ((first + i) * CN_GROUP_MAX + session->planning.seat) *
                                session->config.job->batch);
        }
        err = cn_trainer_accumulate_shared(session->trainer, batch, metrics, &exchange,
                                           i + 1 == passes);
        if (err == CN_EDIVERGED) { // the others wait for this board's part of the next exchange
            diverged = err;
            err = CN_OK;
        }
    }
    return err ? err : diverged;
}

static bool is_finite(const float *values, size_t count)
{
    bool finite = true;

    for (size_t i = 0; i < count; i++)
        finite &= isfinite(values[i]) != 0;
    return finite;
}

// Completes the gradient of stage 1. The sums of other members' pieces are partial, so the
// optimizer must not check them. Clipping uses the norm of the whole gradient.
static cn_err complete_gradient(struct cn_session *session, struct cn_collective *collective,
                                bool *finite)
{
    bool clips = session->config.job->rules.clip > 0;
    float *gradients;
    size_t first = 0;
    cn_err err = cn_trainer_gradients(session->trainer, &gradients);

    for (uint32_t b = 0; !err && b < cn_trainer_bucket_count(session->trainer); b++) {
        size_t words = cn_trainer_bucket_words(session->trainer, b);
        struct cn_trainer_piece own = cn_session_own_piece(session, b, first);
        size_t end = own.first + own.count;

        *finite &= is_finite(gradients + own.first, own.count);
        if (clips) {
            err = run(collective, CN_COLLECTIVE_ALL_GATHER, &session->plan.shard_set,
                      gradients + first, words, CN_PURPOSE_SHARE_CLIPPED);
        } else {
            memset(gradients + first, 0, (own.first - first) * sizeof(float));
            memset(gradients + end, 0, (first + words - end) * sizeof(float));
        }
        first += words;
    }
    return err;
}

cn_err cn_session_check_share(struct cn_session *session, struct cn_collective *collective,
                              bool *finite)
{
    float *share;
    size_t count;
    cn_err err;

    *finite = true;
    if (!has_stage(session, CN_STAGE_GRADIENTS))
        return complete_gradient(session, collective, finite);
    err = cn_trainer_share(session->trainer, &share, &count);
    if (!err)
        *finite = is_finite(share, count);
    return err;
}

// Adds the sum of squares of each shard, in the order of the shards, so that all members get the
// same norm.
cn_err cn_session_sum_squares(struct cn_session *session, struct cn_collective *collective,
                              double weight, double *sum)
{
    uint64_t bits[CN_GROUP_MAX] = {0};
    double squares;
    const struct cn_step_plan *plan = &session->plan;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                      .type = CN_INT64,
                                      .set = &plan->shard_set,
                                      .data = bits,
                                      .count = plan->shards,
                                      .fingerprint = CN_PURPOSE_SHARE_CLIPPED};
    cn_err err = cn_trainer_share_squares(session->trainer, weight, &squares);

    *sum = 0;
    memcpy(&bits[plan->shard], &squares, sizeof(squares));
    if (!err)
        err = collective->ops->run(collective, &call);
    for (uint32_t s = 0; !err && s < plan->shards; s++) {
        memcpy(&squares, &bits[s], sizeof(squares));
        *sum += squares;
    }
    return err;
}

cn_err cn_session_clip_share(struct cn_session *session, struct cn_collective *collective,
                             double weight)
{
    double squares;
    cn_err err;

    if (!has_stage(session, CN_STAGE_GRADIENTS) || !(session->config.job->rules.clip > 0))
        return CN_OK;
    weight = weight > 0 ? weight : 1;
    err = cn_session_sum_squares(session, collective, weight, &squares);
    return err ? err : cn_trainer_share_clip(session->trainer, weight, squares);
}

// Sends the values of a row that this board has and receives the others. room holds one bucket.
static cn_err gather_row(struct cn_session *session, struct cn_collective *collective, float *row,
                         float *room, enum cn_purpose what)
{
    const struct cn_trainer *trainer = session->trainer;
    size_t first = 0;
    cn_err err = CN_OK;

    for (uint32_t b = 0; !err && b < cn_trainer_bucket_count(trainer); b++) {
        size_t words = cn_trainer_bucket_words(trainer, b);
        struct cn_trainer_piece own = cn_session_own_piece(session, b, first);

        cn_trainer_to_gradient_order(trainer, row, own.first, own.count, room + own.first - first);
        err =
            run(collective, CN_COLLECTIVE_ALL_GATHER, &session->plan.shard_set, room, words, what);
        if (!err)
            cn_trainer_from_gradient_order(trainer, room, first, words, row);
        first += words;
    }
    return err;
}

// The gradients' memory is free now. It is cleared for the next step.
cn_err cn_session_gather_weights(struct cn_session *session, struct cn_collective *collective)
{
    uint64_t begun_us = cn_platform_now_us();
    float *weights, *room;
    cn_err err, returned;

    if (has_stage(session, CN_STAGE_WEIGHTS))
        return CN_OK; // in stage 3 weights are fetched when a pass needs them
    err = cn_trainer_lend_bucket(session->trainer, &room);
    if (!err)
        err = cn_trainer_share_weights(session->trainer, &weights);
    if (err)
        return err;
    err = gather_row(session, collective, weights, room, CN_PURPOSE_SHARE_WEIGHTS);
    returned = cn_trainer_return_weights(session->trainer);
    if (!err)
        err = returned;
    if (cn_session_is_cut(session))
        cn_session_note_act(session, CN_CHAIN_GATHER, 0, begun_us, cn_platform_now_us(), 0);
    return err ? err : cn_trainer_discard(session->trainer);
}

// --- rows of the state ---

cn_err cn_session_gather_shares(struct cn_session *session, struct cn_collective *collective,
                                enum cn_session_row what, float *row)
{
    static const struct {
        cn_err (*get)(struct cn_trainer *trainer, float *row);
        enum cn_purpose fingerprint;
    } rows[] = {
        [CN_ROW_WEIGHTS] = {cn_trainer_get_weights, CN_PURPOSE_SHARE_WEIGHTS},
        [CN_ROW_OPTIMIZER] = {cn_trainer_get_optimizer, CN_PURPOSE_SHARE_OPTIMIZER},
        [CN_ROW_SECOND] = {cn_trainer_get_second, CN_PURPOSE_SHARE_SECOND},
    };
    float *room;
    cn_err err = rows[what].get(session->trainer, row);

    if (err || session->plan.shards == 1 ||
        (what == CN_ROW_WEIGHTS && !has_stage(session, CN_STAGE_WEIGHTS)))
        return err;
    err = cn_trainer_lend_bucket(session->trainer, &room);
    return err ? err : gather_row(session, collective, row, room, rows[what].fingerprint);
}

// Rows are gathered one after the other into the same memory. A value without a gradient must not
// keep the previous row's value.
cn_err cn_session_gather_row(struct cn_session *session, struct cn_collective *collective,
                             enum cn_session_row what, float *row)
{
    memset(row, 0, session->held.total * sizeof(*row));
    return cn_session_is_cut(session) ? cn_session_gather_parts(session, collective, what, row)
                                      : cn_session_gather_shares(session, collective, what, row);
}

static void replace(float **old, float *fresh)
{
    cn_scratch_free(*old);
    *old = fresh;
}

cn_err cn_session_bring_weights(struct cn_session *session, struct cn_collective *collective)
{
    float *weights = NULL;
    cn_err err;

    if (!session->plan.trains)
        return CN_OK;
    if (cn_session_is_cut(session) ? !session->plan.chain.parts
                                   : !has_stage(session, CN_STAGE_WEIGHTS))
        return CN_OK;
    err = cn_session_allocate(&weights, session->held.total);
    if (!err)
        err = cn_session_gather_row(session, collective, CN_ROW_WEIGHTS, weights);
    if (!err)
        err = cn_trainer_discard(session->trainer);
    if (err) {
        cn_scratch_free(weights);
        return err;
    }
    replace(&session->held.weights, weights);
    return CN_OK;
}

cn_err cn_session_get_weights(struct cn_session *session, float *to)
{
    const float *held = session->held.weights;

    if (cn_trainer_stage(session->trainer) < CN_STAGE_WEIGHTS && !cn_session_is_cut(session))
        return cn_trainer_get_weights(session->trainer, to);
    if (!held)
        return CN_EINVAL;
    if (to != held)
        memcpy(to, held, session->held.total * sizeof(*to));
    return CN_OK;
}

// --- a share ---

cn_err cn_session_set_share(struct cn_session *session, uint32_t shards, uint32_t shard)
{
    struct cn_trainer_piece pieces[CN_TRAINER_BUCKETS];
    uint32_t count = shards > 1 ? cn_trainer_bucket_count(session->trainer) : 1;
    size_t first = 0;

    pieces[0] = (struct cn_trainer_piece){0, cn_trainer_gradient_words(session->trainer)};
    for (uint32_t b = 0; shards > 1 && b < count; b++) {
        pieces[b] = piece_of(session, b, first, shards, shard);
        first += cn_trainer_bucket_words(session->trainer, b);
    }
    session->sharing.shard = shard;
    return cn_trainer_set_share(session->trainer, pieces, count);
}

cn_err cn_session_take_share(struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_step_plan *plan = &session->plan;
    uint32_t shards = plan->trains ? plan->shards : 1;
    bool fits =
        session->sharing.shards == shards && (shards == 1 || session->sharing.stage == plan->stage);
    cn_err err = cn_session_recall(session);
    bool opened;

    if (!err && !fits)
        err = cn_session_reopen_trainer(session, shards, plan->stage, CN_RECOMPUTE_NONE);
    if (!err)
        err = cn_session_agree_recompute(session, collective, &opened);
    if (!err)
        err = cn_session_set_share(session, shards, plan->trains ? plan->shard : 0);
    if (!err)
        err = cn_session_load_trainer(session);
    if (!err && shards == 1)
        cn_log(CN_LOG_INFO, "session",
               "no shards: this board holds the whole of the model's state");
    if (err || shards == 1)
        return err;
    cn_log(CN_LOG_INFO, "session",
           "shard %u of %u: %" PRIu64 " bytes of the optimizer's state, stage %u, %" PRIu64
           " bytes in all",
           plan->shard + 1, shards, cn_trainer_state_memory(session->trainer),
           cn_trainer_stage(session->trainer), cn_trainer_memory(session->trainer));
    return cn_session_store_held(session);
}
