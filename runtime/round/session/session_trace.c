// session_trace.c - puts the steps of all members on one time axis.
//
// A member that writes a timeline says so in its votes; then all members gather the times of each
// step. On the first such step of an epoch every member measures how far rank 0's clock is ahead of
// its own. It takes the middle of the fastest of several round trips.
#include "runtime/round/session/session_trace.h"

#include <string.h>

#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/timeline.h"

#define ROUND_TRIPS 8

static cn_err message(struct cn_reducer *reducer, enum cn_collective_kind kind, uint32_t peer,
                      int64_t *number)
{
    const struct cn_collective_call call = {
        .kind = kind, .peer = peer, .data = number, .count = sizeof(*number)};

    return reducer->collective->ops->run(reducer->collective, &call);
}

static cn_err answer(struct cn_reducer *reducer, uint32_t peer)
{
    int64_t number;
    cn_err err = message(reducer, CN_COLLECTIVE_RECEIVE, peer, &number);

    number = (int64_t)cn_platform_now_us();
    return err ? err : message(reducer, CN_COLLECTIVE_SEND, peer, &number);
}

static cn_err ask(struct cn_reducer *reducer, int64_t *shortest)
{
    int64_t asked = (int64_t)cn_platform_now_us(), answered, theirs = 0;
    cn_err err = message(reducer, CN_COLLECTIVE_SEND, 0, &theirs);

    if (!err)
        err = message(reducer, CN_COLLECTIVE_RECEIVE, 0, &theirs);
    answered = (int64_t)cn_platform_now_us();
    if (!err && answered - asked < *shortest) {
        *shortest = answered - asked;
        reducer->ahead_us = theirs - (asked + answered) / 2;
    }
    return err;
}

static cn_err compare_clocks(struct cn_reducer *reducer)
{
    int64_t shortest = INT64_MAX;
    cn_err err = CN_OK;

    for (uint32_t r = 1; r < reducer->size; r++)
        for (int i = 0; !err && i < ROUND_TRIPS; i++) {
            if (reducer->rank == 0)
                err = answer(reducer, r);
            else if (reducer->rank == r)
                err = ask(reducer, &shortest);
        }
    reducer->compared = !err;
    return err;
}

static void fill_row(const struct cn_session *session, const struct cn_step_times *times,
                     struct cn_trace_row *row)
{
    const struct cn_reducer *reducer = session->reducer;
    const uint64_t at[] = {reducer ? reducer->joined_us : times->begun,
                           times->begun,
                           times->computed,
                           times->reduced,
                           times->voted,
                           times->applied};
    int64_t ahead = reducer ? reducer->ahead_us : 0;

    memset(row, 0, sizeof(*row));
    row->calls = reducer ? reducer->posted : 0;
    for (int i = 0; i < CN_TRACE_TIMES; i++)
        row->at[i] = (int64_t)at[i] + ahead;
    for (uint32_t i = 0; i < row->calls; i++) {
        uint64_t begin, end;

        cn_queue_times(reducer->queue, reducer->calls[i].work, &begin, &end);
        row->call[i][0] = (int64_t)begin + ahead;
        row->call[i][1] = (int64_t)end + ahead;
        row->call[i][2] = (int64_t)(reducer->calls[i].count * sizeof(float));
    }
}

static void write_row(const struct cn_session *session, uint32_t member,
                      const struct cn_trace_row *row)
{
    struct cn_timeline *timeline = session->config.timeline;
    int64_t ahead = session->reducer ? session->reducer->ahead_us : 0;
    bool chained = session->plan.chain.parts > 1;
    struct cn_timeline_span span = {.member = member, .number = cn_session_steps_before(session)};
    static const struct {
        const char *name;
        uint32_t row;
        int begin;
    } parts[] = {{"compute", CN_TIMELINE_COMPUTE, CN_TRACE_BEGUN},
                 {"wait for gradients", CN_TIMELINE_VOTES, CN_TRACE_COMPUTED},
                 {"vote", CN_TIMELINE_VOTES, CN_TRACE_REDUCED},
                 {"apply", CN_TIMELINE_COMPUTE, CN_TRACE_VOTED}};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (chained && parts[i].begin < CN_TRACE_REDUCED)
            continue; // session_chain_trace.c shows each pass and message instead
        span.name = parts[i].name;
        span.row = parts[i].row;
        span.begin_us = row->at[parts[i].begin] - ahead;
        span.end_us = row->at[parts[i].begin + 1] - ahead;
        cn_timeline_add(timeline, &span);
    }
    if (chained)
        return;
    span.name = "bucket";
    span.row = CN_TIMELINE_WIRE;
    if (session->reducer && !row->calls) {
        span.begin_us = row->at[CN_TRACE_COMPUTED] - ahead;
        span.end_us = row->at[CN_TRACE_REDUCED] - ahead;
        span.bytes = cn_trainer_gradient_words(session->trainer) * sizeof(float);
        cn_timeline_add(timeline, &span);
    }
    for (uint32_t i = 0; i < row->calls && i < CN_TRAINER_BUCKETS; i++) {
        span.begin_us = row->call[i][0] - ahead;
        span.end_us = row->call[i][1] - ahead;
        span.bytes = (uint64_t)row->call[i][2];
        cn_timeline_add(timeline, &span);
    }
}

static void write_alone(const struct cn_session *session, const struct cn_step_times *times)
{
    struct cn_trace_row row;

    fill_row(session, times, &row);
    cn_timeline_name(session->config.timeline, 0, session->config.settings->name);
    write_row(session, 0, &row);
}

cn_err cn_session_trace(struct cn_session *session, const struct cn_step_times *times)
{
    const struct cn_group_settings *group = &session->config.settings->group;
    struct cn_reducer *reducer = session->reducer;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER, .type = CN_INT64};
    cn_err err = CN_OK;

    if (!reducer) {
        write_alone(session, times);
        return CN_OK;
    }
    if (!reducer->compared)
        err = compare_clocks(reducer);
    if (err)
        return err;
    fill_row(session, times, &reducer->rows[reducer->rank]);
    call.data = reducer->rows;
    call.count = reducer->size * sizeof(reducer->rows[0]) / sizeof(int64_t);
    err = reducer->collective->ops->run(reducer->collective, &call);
    for (uint32_t r = 0; !err && session->config.timeline && r < reducer->size; r++) {
        cn_timeline_name(session->config.timeline, reducer->members[r],
                         group->members[reducer->members[r]].name);
        write_row(session, reducer->members[r], &reducer->rows[r]);
    }
    return err || session->plan.chain.parts <= 1 ? err : cn_session_trace_chain(session);
}

void cn_session_trace_epoch(const struct cn_session *session)
{
    const struct cn_reducer *reducer = session->reducer;

    for (uint32_t r = 0; session->config.timeline && r < reducer->size; r++) {
        const struct cn_trace_row *row = &reducer->rows[r];
        struct cn_timeline_span span = {
            .name = "epoch",
            .member = reducer->members[r],
            .row = CN_TIMELINE_EPOCHS,
            .begin_us = row->at[CN_TRACE_JOINED] - reducer->ahead_us,
            .end_us = row->at[CN_TRACE_APPLIED] - reducer->ahead_us,
            .number = session->held.epoch,
        };

        if (row->at[CN_TRACE_APPLIED])
            cn_timeline_add(session->config.timeline, &span);
    }
}

void cn_session_trace_work(const struct cn_session *session, const char *name, uint64_t begun_us)
{
    const struct cn_group_settings *group = &session->config.settings->group;
    const struct cn_reducer *reducer = session->reducer;
    const struct cn_timeline_span span = {
        .name = name,
        .member = reducer ? reducer->members[reducer->rank] : 0,
        .row = CN_TIMELINE_ROUNDS,
        .begin_us = (int64_t)begun_us,
        .end_us = (int64_t)cn_platform_now_us(),
        .number = session->held.round,
    };

    if (!session->config.timeline)
        return;
    cn_timeline_name(session->config.timeline, span.member,
                     reducer ? group->members[span.member].name : session->config.settings->name);
    cn_timeline_add(session->config.timeline, &span);
}
