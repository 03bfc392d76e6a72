#include "runtime/round/session_reduce.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define WAIT_MS 1000

cn_err cn_session_join(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view)
{
    const struct cn_group_settings *settings = &session->config.settings->group;
    struct cn_reducer *reducer;
    cn_err err;

    session->split = (struct cn_step_split){0};
    if (view->size < 2)
        return CN_OK;
    reducer = calloc(1, sizeof(*reducer));
    if (!reducer)
        return CN_ENOMEM;
    *reducer = (struct cn_reducer){.collective = collective,
                                   .trainer = session->trainer,
                                   .rank = view->rank,
                                   .size = view->size,
                                   .measured = !settings->bucket,
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

    if (session->reducer && session->reducer->bucket)
        return session->reducer->bucket;
    return bucket ? (size_t)bucket : CN_BUCKET_FIRST;
}

cn_err cn_session_set_bucket(struct cn_session *session, size_t bucket)
{
    struct cn_reducer *reducer = session->reducer;

    if (!reducer || reducer->bucket == bucket)
        return CN_OK;
    reducer->bucket = bucket;
    return cn_trainer_set_buckets(reducer->trainer, bucket / sizeof(float));
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

// This board's piece of a bucket, over its shards and then over the replicas.
static cn_err post_shared(struct cn_reducer *reducer, uint32_t bucket, float *data, size_t count)
{
    const struct cn_step_plan *plan = reducer->shares;
    struct cn_collective_call call = cn_reducer_call(reducer, data, count, bucket + 1);
    size_t first;
    cn_err err;

    call.kind = CN_COLLECTIVE_REDUCE_SCATTER;
    call.set = &plan->together;
    err = cn_reducer_post(reducer, &call, &reducer->works[bucket]);
    if (err || plan->alike.size < 2)
        return err;
    call.kind = CN_COLLECTIVE_ALL_REDUCE;
    call.set = &plan->alike;
    call.count = cn_reduce_share(count, plan->shards, plan->shard, &first);
    call.data = data + first;
    return cn_reducer_post(reducer, &call, &reducer->works[bucket]);
}

static void take(void *context, uint32_t bucket, float *data, size_t count)
{
    struct cn_reducer *reducer = context;
    const struct cn_collective_call call = cn_reducer_call(reducer, data, count, bucket + 1);

    if (reducer->err)
        return;
    reducer->err = reducer->shares ? post_shared(reducer, bucket, data, count)
                                   : cn_reducer_post(reducer, &call, &reducer->works[bucket]);
    if (!reducer->err)
        reducer->posted = bucket + 1;
}

void cn_reducer_begin(struct cn_reducer *reducer, struct cn_trainer_sink *sink)
{
    reducer->posted = 0;
    reducer->newest = (struct cn_work){0};
    reducer->waited_us = 0;
    reducer->err = CN_OK;
    *sink = (struct cn_trainer_sink){.ready = take, .context = reducer};
}

// A call that makes no progress is ended by the port, so this ends.
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

    if (reducer->posted == cn_trainer_bucket_count(reducer->trainer))
        return CN_OK;
    err = cn_trainer_gradients(reducer->trainer, &gradients);
    for (uint32_t i = 0; !err && i < cn_trainer_bucket_count(reducer->trainer); i++) {
        size_t words = cn_trainer_bucket_words(reducer->trainer, i);

        if (i >= reducer->posted)
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
        err = cn_reducer_wait(reducer, reducer->works[reducer->posted - 1]);
    if (err)
        cn_reducer_cancel(reducer);
    return err;
}

void cn_reducer_cancel(struct cn_reducer *reducer)
{
    if (!reducer->newest.number)
        return;
    reducer->collective->ops->cancel(reducer->collective);
    (void)cn_reducer_wait(reducer, reducer->newest); // how it ended is known already
}

void cn_reducer_measure(struct cn_reducer *reducer, const struct cn_step_times *times)
{
    for (uint32_t i = 0; i < reducer->posted; i++) {
        uint64_t begin, end;

        cn_queue_times(reducer->queue, reducer->works[i], &begin, &end);
        cn_bucket_tuner_add(&reducer->tuner,
                            cn_trainer_bucket_words(reducer->trainer, i) * sizeof(float),
                            (double)(end - begin));
    }
    cn_bucket_tuner_add(&reducer->tuner, 1, (double)(times->voted - times->reduced));
}

size_t cn_reducer_choose(struct cn_reducer *reducer, const struct cn_step_times *times)
{
    size_t total = cn_trainer_gradient_words(reducer->trainer) * sizeof(float);

    if (!reducer->measured)
        return reducer->bucket;
    return cn_bucket_tuner_step(&reducer->tuner, total, (double)(times->computed - times->begun),
                                reducer->bucket);
}
