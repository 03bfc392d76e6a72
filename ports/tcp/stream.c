#include "ports/tcp/stream.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define STALL_MS 1000 // time without a byte before the log names the member that is waited for
#define HOLE_MS 3000  // time without a byte before a path is looked at that may lose large packets

void cn_flow_add(struct cn_flow *flow, void *data, size_t size, enum cn_arrival arrival)
{
    assert(flow->count < CN_SPANS);
    flow->spans[flow->count++] = (struct cn_span){data, size, arrival};
    flow->total += size;
}

struct cn_stream *cn_stream_exchange_stream(struct cn_stream_exchange *exchange,
                                            struct cn_pair *pair, uint32_t member)
{
    for (uint32_t i = 0; i < exchange->count; i++)
        if (exchange->streams[i].pair == pair)
            return &exchange->streams[i];
    assert(exchange->count < CN_GROUP_MAX);
    exchange->streams[exchange->count] = (struct cn_stream){.pair = pair, .member = member};
    return &exchange->streams[exchange->count++];
}

static cn_err lose(struct cn_stream_exchange *exchange, const struct cn_stream *stream, cn_err err)
{
    exchange->lost = stream->member;
    return err;
}

// Returns the span in progress, or NULL at the end of the flow.
static struct cn_span *current_span(struct cn_flow *flow)
{
    while (flow->at < flow->count && flow->offset == flow->spans[flow->at].size) {
        flow->at++;
        flow->offset = 0;
    }
    return flow->at < flow->count ? &flow->spans[flow->at] : NULL;
}

// Notes that size bytes of the current span are done.
static void pass(struct cn_flow *flow, size_t size)
{
    flow->offset += size;
    flow->done += size;
}

// Returns how many bytes of out may have been sent by now.
static size_t limit_of(const struct cn_stream *stream)
{
    size_t total = stream->out.total;

    if (!stream->after)
        return total;
    return stream->credit + stream->after->done < total ? stream->credit + stream->after->done
                                                        : total;
}

static cn_err send_some(struct cn_stream *stream)
{
    struct cn_span *span = current_span(&stream->out);
    size_t left = span->size - stream->out.offset;
    size_t limit = limit_of(stream) - stream->out.done;
    size_t sent;
    cn_err err;

    if (left > limit)
        left = limit;
    err = cn_pair_send(stream->pair, span->data + stream->out.offset, left, &sent);
    if (!err)
        pass(&stream->out, sent);
    return err;
}

// Receives and reduces. Bytes of an incomplete element stay in the scratch for the next time.
static cn_err reduce_some(struct cn_stream_exchange *exchange, struct cn_stream *stream,
                          const struct cn_span *span)
{
    size_t left = span->size - stream->in.offset, element = cn_number_size(exchange->type);
    uint8_t *into = span->data + stream->in.offset;
    size_t received, whole;
    cn_err err;

    if (left > CN_STREAM_EXCHANGE_SCRATCH)
        left = CN_STREAM_EXCHANGE_SCRATCH;
    err = cn_pair_receive(stream->pair, exchange->scratch + exchange->partial,
                          left - exchange->partial, &received);
    if (err)
        return err;
    received += exchange->partial;
    whole = received / element * element;
    exchange->partial = received - whole;
    cn_reduce_into(exchange->type, exchange->how, into, exchange->scratch, whole / element);
    if (span->arrival == CN_ARRIVAL_FINISH)
        cn_reduce_finish(exchange->type, exchange->how, into, whole / element, exchange->members);
    memmove(exchange->scratch, exchange->scratch + whole, exchange->partial);
    pass(&stream->in, whole);
    return CN_OK;
}

static cn_err receive_some(struct cn_stream_exchange *exchange, struct cn_stream *stream)
{
    struct cn_span *span = current_span(&stream->in);
    size_t received;
    cn_err err;

    if (span->arrival == CN_ARRIVAL_REDUCE || span->arrival == CN_ARRIVAL_FINISH)
        return reduce_some(exchange, stream, span);
    err = cn_pair_receive(stream->pair, span->data + stream->in.offset,
                          span->size - stream->in.offset, &received);
    if (err)
        return err;
    pass(&stream->in, received);
    if (span->arrival == CN_ARRIVAL_MATCH && stream->in.offset == span->size &&
        memcmp(span->data, exchange->expected, span->size) != 0)
        return CN_ECONFLICT;
    return CN_OK;
}

static bool receives(const struct cn_stream *stream)
{
    return stream->in.done < stream->in.total;
}

static bool sends(const struct cn_stream *stream)
{
    return stream->out.done < stream->out.total;
}

// Sends and receives on all streams, without waiting.
static cn_err move(struct cn_stream_exchange *exchange, bool *moved, bool *done)
{
    *moved = false;
    *done = true;
    for (uint32_t i = 0; i < exchange->count; i++) {
        struct cn_stream *stream = &exchange->streams[i];
        cn_err err;

        if (stream->out.done < limit_of(stream)) {
            err = send_some(stream);
            if (err && err != CN_EAGAIN)
                return lose(exchange, stream, err);
            *moved |= !err;
        }
        if (receives(stream)) {
            err = receive_some(exchange, stream);
            if (err && err != CN_EAGAIN)
                return lose(exchange, stream, err);
            *moved |= !err;
        }
        *done = *done && !receives(stream) && !sends(stream);
    }
    return CN_OK;
}

// Returns the stream that holds up the exchange: one that must still receive, else one that must
// still send.
static const struct cn_stream *laggard(const struct cn_stream_exchange *exchange)
{
    const struct cn_stream *found = exchange->streams;

    for (uint32_t i = exchange->count; i-- > 0;)
        if (sends(&exchange->streams[i]))
            found = &exchange->streams[i];
    for (uint32_t i = exchange->count; i-- > 0;)
        if (receives(&exchange->streams[i]))
            found = &exchange->streams[i];
    return found;
}

static bool loses_large(const struct cn_stream_exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->count; i++)
        if (cn_pair_loses_large(exchange->streams[i].pair))
            return true;
    return false;
}

// Logs the member that is waited for, or gives up on it when the time is over. Gives up earlier,
// and on no member, where a path loses large packets: only new connections have smaller ones.
static cn_err report_stall(struct cn_stream_exchange *exchange, uint32_t silent_ms)
{
    const struct cn_stream *stream = laggard(exchange);

    if (silent_ms >= exchange->timeout_ms)
        return lose(exchange, stream, CN_ETIMEOUT);
    if (silent_ms >= HOLE_MS)
        return loses_large(exchange) ? CN_ETIMEOUT : CN_OK;
    cn_log(CN_LOG_WARN, "collective", "%s waits for %s since %u ms", exchange->doing,
           exchange->names[stream->member].name, silent_ms);
    return CN_OK;
}

static uint32_t next_look_ms(const struct cn_stream_exchange *exchange, uint32_t silent_ms)
{
    uint32_t look_ms = silent_ms < STALL_MS ? STALL_MS : HOLE_MS;

    return silent_ms < look_ms && look_ms < exchange->timeout_ms ? look_ms : exchange->timeout_ms;
}

// Waits until a stream can move. *silent_ms is the time since bytes last moved.
static cn_err wait_for_peers(struct cn_stream_exchange *exchange, uint32_t *silent_ms)
{
    const short gone = POLLERR | POLLHUP | POLLRDHUP;
    struct pollfd fds[CN_GROUP_MAX + 2] = {{.fd = exchange->stop_fds[0], .events = POLLIN},
                                           {.fd = exchange->stop_fds[1], .events = POLLIN}};
    uint32_t until_ms = next_look_ms(exchange, *silent_ms);
    int wait_ms = until_ms - *silent_ms > INT32_MAX ? INT32_MAX : (int)(until_ms - *silent_ms);
    int count;

    for (uint32_t i = 0; i < exchange->count; i++) {
        const struct cn_stream *stream = &exchange->streams[i];
        bool ready = stream->out.done < limit_of(stream);

        // POLLRDHUP also reports the end of a peer while this board has nothing to send to it yet.
        fds[i + 2] = (struct pollfd){
            .fd = receives(stream) || sends(stream) ? cn_pair_descriptor(stream->pair) : -1,
            .events = (short)((receives(stream) ? POLLIN : 0) | (ready ? POLLOUT : 0) |
                              (sends(stream) ? POLLRDHUP : 0))};
    }
    count = poll(fds, exchange->count + 2, wait_ms);
    if (count < 0 && errno != EINTR)
        return CN_EIO;
    if (count == 0) {
        *silent_ms = until_ms;
        return report_stall(exchange, until_ms);
    }
    if (fds[1].revents)
        return CN_ECANCELED;
    for (uint32_t i = 0; i < exchange->count; i++)
        if (sends(&exchange->streams[i]) && fds[i + 2].revents & gone)
            return lose(exchange, &exchange->streams[i], CN_EPEER);
    return CN_OK;
}

cn_err cn_stream_exchange_run(struct cn_stream_exchange *exchange)
{
    uint32_t silent_ms = 0;
    bool moved, done;

    exchange->partial = 0;
    exchange->lost = UINT32_MAX;
    for (;;) {
        cn_err err;

        if (atomic_load_explicit(exchange->canceled, memory_order_relaxed))
            return CN_ECANCELED;
        err = move(exchange, &moved, &done);
        if (err || done)
            return err;
        if (moved) {
            silent_ms = 0;
            continue;
        }
        err = wait_for_peers(exchange, &silent_ms);
        if (err)
            return err;
    }
}
