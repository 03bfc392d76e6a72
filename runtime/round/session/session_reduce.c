#include "runtime/round/session/session_private.h"
#include "runtime/round/session/session_trace.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/purpose.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define WAIT_MS 1000

// Returns whether the size of the buckets is measured: as the profile says, and with "parallel:
// auto", whose result depends on timing anyway, unless the profile names another size than the
// default.
static bool measures_buckets(const struct cn_session *session)
{
    uint64_t bucket = session->config.settings->group.bucket;

    return !bucket || (bucket == CN_BUCKET_FIRST && cn_session_is_automatic(session));
}

cn_err cn_session_join(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view)
{
    struct cn_reducer *reducer;
    cn_err err;

    session->held.epoch = view->epoch;
    session->disk.copied = 0;
    session->planning.seat = view->ranks[view->rank];
    session->measured.split = (struct cn_step_split){0};
    if (view->size < 2)
        return CN_OK;
    reducer = calloc(1, sizeof(*reducer));
    if (!reducer)
        return CN_ENOMEM;
    *reducer = (struct cn_reducer){.collective = collective,
                                   .trainer = session->trainer,
                                   .rank = view->rank,
                                   .size = view->size,
                                   .measured = measures_buckets(session),
                                   .choice = {.window = 1},
                                   .joined_us = cn_platform_now_us()};
    memcpy(reducer->members, view->ranks, sizeof(reducer->members));
    err = cn_queue_open(collective, &reducer->queue);
    if (err) {
        free(reducer);
        return err;
    }
    session->reducer = reducer;
    return CN_OK;
}

void cn_session_leave(struct cn_session *session)
{
    if (!session->reducer)
        return;
    cn_session_trace_epoch(session);
    cn_queue_close(session->reducer->queue);
    free(session->reducer);
    session->reducer = NULL;
}

size_t cn_session_bucket(const struct cn_session *session)
{
    uint64_t bucket = session->config.settings->group.bucket;

    if (session->reducer && session->reducer->choice.bucket)
        return session->reducer->choice.bucket;
    return bucket ? (size_t)bucket : CN_BUCKET_FIRST;
}

cn_err cn_session_set_bucket(struct cn_session *session, size_t bucket)
{
    struct cn_reducer *reducer = session->reducer;
    struct cn_bucket_choice choice = {bucket, reducer ? reducer->choice.window : 1};

    return reducer ? cn_reducer_use(reducer, &choice) : CN_OK;
}

cn_err cn_reducer_use(struct cn_reducer *reducer, const struct cn_bucket_choice *choice)
{
    size_t before = reducer->choice.bucket;

    reducer->choice = *choice;
    return choice->bucket == before
               ? CN_OK
               : cn_trainer_set_buckets(reducer->trainer, choice->bucket / sizeof(float));
}

void cn_session_set_wire(struct cn_session *session, enum cn_number wire)
{
    if (session->reducer)
        session->reducer->wire = wire;
}

struct cn_collective_call cn_reducer_call(const struct cn_reducer *reducer, float *data,
                                          size_t count, uint32_t fingerprint)
{
    return (struct cn_collective_call){.kind = CN_COLLECTIVE_ALL_REDUCE,
                                       .how = CN_REDUCE_SUM,
                                       .wire = reducer->wire,
                                       .set = reducer->set,
                                       .data = data,
                                       .count = count,
                                       .fingerprint = fingerprint};
}

cn_err cn_reducer_post(struct cn_reducer *reducer, const struct cn_collective_call *call,
                       struct cn_work *work)
{
    cn_err err = cn_queue_post(reducer->queue, call, work);

    if (!err)
        reducer->newest = *work;
    return err;
}

// Posts a bucket of a step with shards: this board gets the sum of its piece over the shards, which
// the replicas then add up.
static cn_err post_shared(struct cn_reducer *reducer, uint32_t bucket, struct reducer_call *next)
{
    const struct cn_step_plan *plan = reducer->shares;
    struct cn_collective_call call = cn_reducer_call(reducer, reducer->data, next->count,
                                                     cn_purpose_at(CN_PURPOSE_BUCKET, bucket));
    size_t first;
    cn_err err;

    call.kind = CN_COLLECTIVE_REDUCE_SCATTER;
    call.set = &plan->shard_set;
    err = cn_reducer_post(reducer, &call, &next->work);
    if (err || plan->replica_set.size < 2)
        return err;
    call.kind = CN_COLLECTIVE_ALL_REDUCE;
    call.set = &plan->replica_set;
    call.count = cn_reduce_share(next->count, plan->shards, plan->shard, &first);
    call.data = reducer->data + first;
    return cn_reducer_post(reducer, &call, &next->work);
}

// Posts one call for the finished buckets that are not posted. They are contiguous.
static void post(struct cn_reducer *reducer)
{
    struct reducer_call *next = &reducer->calls[reducer->posted];
    struct cn_collective_call call;

    next->count = 0;
    for (uint32_t i = reducer->first; i < reducer->told; i++)
        next->count += cn_trainer_bucket_words(reducer->trainer, i);
    call = cn_reducer_call(reducer, reducer->data, next->count,
                           cn_purpose_at(CN_PURPOSE_BUCKET, reducer->first));
    reducer->err = reducer->shares ? post_shared(reducer, reducer->first, next)
                                   : cn_reducer_post(reducer, &call, &next->work);
    if (reducer->err)
        return;
    reducer->posted++;
    reducer->first = reducer->told;
}

static void take(void *context, uint32_t bucket, float *data, size_t count)
{
    struct cn_reducer *reducer = context;
    bool last = bucket + 1 == cn_trainer_bucket_count(reducer->trainer);

    (void)count;
    if (reducer->err)
        return;
    if (reducer->first == bucket)
        reducer->data = data;
    reducer->told = bucket + 1;
    if (last || !reducer->posted || reducer->shares ||
        reducer->told - reducer->first >= reducer->choice.window)
        post(reducer);
}

void cn_reducer_begin(struct cn_reducer *reducer, struct cn_trainer_sink *sink)
{
    reducer->told = reducer->first = reducer->posted = 0;
    reducer->newest = (struct cn_work){0};
    reducer->waited_us = 0;
    reducer->err = CN_OK;
    *sink = (struct cn_trainer_sink){.ready = take, .context = reducer};
}

// Waits for a call. This ends, because the port ends a call that makes no progress.
cn_err cn_reducer_wait(struct cn_reducer *reducer, struct cn_work work)
{
    cn_err err;

    do
        err = cn_queue_wait(reducer->queue, work, WAIT_MS);
    while (err == CN_ETIMEOUT && !cn_queue_test(reducer->queue, work));
    return err;
}

static cn_err post_rest(struct cn_reducer *reducer)
{
    float *gradients;
    cn_err err;

    if (reducer->told == cn_trainer_bucket_count(reducer->trainer))
        return CN_OK;
    err = cn_trainer_gradients(reducer->trainer, &gradients);
    for (uint32_t i = 0; !err && i < cn_trainer_bucket_count(reducer->trainer); i++) {
        size_t words = cn_trainer_bucket_words(reducer->trainer, i);

        if (i >= reducer->told)
            take(reducer, i, gradients, words);
        gradients += words;
    }
    return err;
}

cn_err cn_reducer_finish(struct cn_reducer *reducer)
{
    cn_err err = reducer->err ? reducer->err : post_rest(reducer);

    if (!err)
        err = reducer->err;
    if (!err && reducer->posted)
        err = cn_reducer_wait(reducer, reducer->calls[reducer->posted - 1].work);
    if (err)
        cn_reducer_cancel(reducer);
    return err;
}

void cn_reducer_cancel(struct cn_reducer *reducer)
{
    if (!reducer->newest.number)
        return;
    reducer->collective->ops->cancel(reducer->collective, false);
    (void)cn_reducer_wait(reducer, reducer->newest); // its result is already known
}

void cn_reducer_measure(struct cn_reducer *reducer, const struct cn_step_times *times)
{
    for (uint32_t i = 0; i < reducer->posted; i++) {
        uint64_t begin, end;

        cn_queue_times(reducer->queue, reducer->calls[i].work, &begin, &end);
        cn_bucket_tuner_add(&reducer->tuner, reducer->calls[i].count * sizeof(float),
                            (double)(end - begin));
    }
    if (!reducer->posted) // all gradients went in one call
        cn_bucket_tuner_add(&reducer->tuner,
                            cn_trainer_gradient_words(reducer->trainer) * sizeof(float),
                            (double)(times->reduced - times->computed));
    cn_bucket_tuner_add(&reducer->tuner, 1, (double)(times->voted - times->reduced));
}

// Returns the rate of a link in a ring: each member sends 2 (n - 1) / n of the bytes.
static double megabits(const struct cn_reducer *reducer, const struct cn_bucket_costs *costs)
{
    return 16.0 * (reducer->size - 1) / reducer->size / costs->byte_us;
}

static void tell(const struct cn_reducer *reducer, enum cn_tuner_event event,
                 const struct cn_bucket_choice *choice)
{
    const struct cn_bucket_tuner *tuner = &reducer->tuner;

    if (event == CN_TUNER_SHIFTED)
        cn_log(CN_LOG_INFO, "reduce",
               "the link changed from %.3g to %.3g Mbit/s: measuring it again",
               megabits(reducer, &tuner->settled), megabits(reducer, &tuner->now));
    if (event == CN_TUNER_CHOSE)
        cn_log(CN_LOG_INFO, "reduce",
               "the link carries %.3g Mbit/s, a call costs %.3g ms: buckets of %zu KiB, %u in each "
               "call after the first",
               megabits(reducer, &tuner->settled), 1e-3 * tuner->settled.latency_us,
               choice->bucket >> 10, choice->window);
}

struct cn_bucket_choice cn_reducer_choose(struct cn_reducer *reducer,
                                          const struct cn_step_times *times, uint32_t micro)
{
    size_t total = cn_trainer_gradient_words(reducer->trainer) * sizeof(float);
    double compute_us = (double)(times->computed - times->begun) / (micro ? micro : 1);
    struct cn_bucket_choice choice = reducer->choice;

    if (reducer->measured)
        tell(reducer, cn_bucket_tuner_step(&reducer->tuner, total, compute_us, &choice), &choice);
    return choice;
}
