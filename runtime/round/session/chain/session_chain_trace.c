// session_chain_trace.c - what this board's part did in a step of a chain: each pass and each
// message with its times, for a timeline.
//
// Every step is noted, because only its votes tell whether a member writes a timeline. Of a step
// with more exchanges than CN_CHAIN_EXCHANGES, or more acts than CN_CHAIN_EVENTS, the first are
// shown.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/group/queue.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/timeline.h"

// What a member tells the others of a step. All fields are int64, the type in which they travel.
struct chain_row {
    int64_t count;
    int64_t events[CN_CHAIN_EVENTS][CN_CHAIN_EVENT_WORDS];
};

struct posted {
    struct cn_work work;
    enum cn_chain_act act;
    uint32_t batch;
    size_t bytes;
};

struct cn_chain_log {
    struct chain_row row;
    // Calls whose times are not known yet: call n is at n % CN_QUEUE_SIZE.
    struct posted posted[CN_QUEUE_SIZE];
    uint64_t first, next;
    uint32_t exchanges; // number of exchanges in row
};

cn_err cn_session_open_chain_log(struct cn_session *session)
{
    if (!session->chain.log)
        session->chain.log = calloc(1, sizeof(*session->chain.log));
    return session->chain.log ? CN_OK : CN_ENOMEM;
}

void cn_session_begin_chain_log(struct cn_session *session)
{
    struct cn_chain_log *log = session->chain.log;

    log->row.count = 0;
    log->first = log->next = 0;
    log->exchanges = 0;
}

void cn_session_note_act(struct cn_session *session, enum cn_chain_act act, uint32_t batch,
                         uint64_t begin_us, uint64_t end_us, size_t bytes)
{
    struct cn_chain_log *log = session->chain.log;
    struct chain_row *row = &log->row;
    bool exchange = act >= CN_CHAIN_FETCH && act <= CN_CHAIN_ADD;
    int64_t *event = row->events[row->count];

    if (row->count == CN_CHAIN_EVENTS || (exchange && log->exchanges == CN_CHAIN_EXCHANGES))
        return;
    log->exchanges += exchange;
    row->count++;
    event[0] = (int64_t)act | (int64_t)batch << 8;
    event[1] = (int64_t)begin_us;
    event[2] = (int64_t)end_us;
    event[3] = (int64_t)bytes;
}

void cn_session_note_ended(struct cn_session *session)
{
    struct cn_chain_log *log = session->chain.log;
    struct cn_queue *queue = session->reducer->queue;

    for (; log->first < log->next; log->first++) {
        const struct posted *posted = &log->posted[log->first % CN_QUEUE_SIZE];
        uint64_t begin_us, end_us;

        if (!cn_queue_test(queue, posted->work))
            return;
        cn_queue_times(queue, posted->work, &begin_us, &end_us);
        cn_session_note_act(session, posted->act, posted->batch, begin_us, end_us, posted->bytes);
    }
}

void cn_session_note_call(struct cn_session *session, enum cn_chain_act act, uint32_t batch,
                          struct cn_work work, size_t bytes)
{
    struct cn_chain_log *log = session->chain.log;

    if (log->next - log->first == CN_QUEUE_SIZE)
        log->first++; // its times may be gone
    log->posted[log->next++ % CN_QUEUE_SIZE] = (struct posted){work, act, batch, bytes};
}

// --- the timeline ---

static void write_event(struct cn_session *session, uint32_t member,
                        const int64_t event[CN_CHAIN_EVENT_WORDS])
{
    static const char *const names[] = {
        [CN_CHAIN_FORWARD] = "F",
        [CN_CHAIN_BACKWARD] = "B",
        [CN_CHAIN_SEND_F] = "send F",
        [CN_CHAIN_SEND_B] = "send B",
        [CN_CHAIN_RECEIVE_F] = "receive F",
        [CN_CHAIN_RECEIVE_B] = "receive B",
        [CN_CHAIN_FETCH] = "fetch weights",
        [CN_CHAIN_REDUCE] = "reduce gradients",
        [CN_CHAIN_ADD] = "add replicas",
        [CN_CHAIN_SUM] = "sum",
        [CN_CHAIN_GATHER] = "gather weights",
    };
    uint32_t act = (uint32_t)(event[0] & 255), batch = (uint32_t)(event[0] >> 8);
    char name[40];
    const struct cn_timeline_span span = {
        .name = name,
        .member = member,
        .row = act <= CN_CHAIN_BACKWARD ? CN_TIMELINE_COMPUTE : CN_TIMELINE_WIRE,
        .begin_us = event[1] - session->reducer->ahead_us,
        .end_us = event[2] - session->reducer->ahead_us,
        .number = cn_session_steps_before(session),
        .bytes = (uint64_t)event[3],
    };

    if (act > CN_CHAIN_GATHER) // of a member that means something else by it
        return;
    if (act < CN_CHAIN_SUM)
        snprintf(name, sizeof(name), "%s %u", names[act], batch);
    else
        snprintf(name, sizeof(name), "%s", names[act]);
    cn_timeline_add(session->config.timeline, &span);
}

static void fill_row(const struct cn_session *session, struct chain_row *row)
{
    if (session->plan.chain.idle)
        return;
    *row = session->chain.log->row;
    for (int64_t i = 0; i < row->count; i++) {
        row->events[i][1] += session->reducer->ahead_us;
        row->events[i][2] += session->reducer->ahead_us;
    }
}

cn_err cn_session_trace_chain(struct cn_session *session)
{
    struct cn_reducer *reducer = session->reducer;
    struct chain_row *rows = calloc(reducer->size, sizeof(*rows));
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = rows,
                                            .count =
                                                reducer->size * sizeof(*rows) / sizeof(int64_t)};
    cn_err err;

    if (!rows)
        return CN_ENOMEM;
    fill_row(session, &rows[reducer->rank]);
    err = reducer->collective->ops->run(reducer->collective, &call);
    for (uint32_t r = 0; !err && session->config.timeline && r < reducer->size; r++)
        for (int64_t i = 0; i < rows[r].count && i < CN_CHAIN_EVENTS; i++)
            write_event(session, reducer->members[r], rows[r].events[i]);
    free(rows);
    return err;
}
