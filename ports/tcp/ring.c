// Every rank sends to the next and receives from the previous one. An operation is two byte
// streams, one in and one out; see struct flow. README.md explains the order of the chunks.
#include "ports/tcp/ring.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ports/tcp/meeting.h"
#include "ports/tcp/pair.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define HANDSHAKE_MS 2000
#define SCRATCH_SIZE 16384       // bytes; a TLS record carries no more
#define HEADER_SIZE 16           // PROTOCOL.md
#define SPANS (2 * CN_GROUP_MAX) // an all-reduce has 2 * (size - 1) chunks

enum operation {
    OPERATION_ALL_REDUCE = 1,
    OPERATION_BROADCAST = 2,
};

enum arrival {
    ARRIVAL_COPY,
    ARRIVAL_SUM,
    ARRIVAL_MAX,
};

struct span {
    uint8_t *data;
    size_t size;
    enum arrival arrival; // what receiving does; sending ignores it
};

// Bytes that pass in one direction during an operation, in this order.
struct flow {
    struct span spans[SPANS];
    uint32_t count;
    uint32_t at;   // span in progress
    size_t offset; // in it
    size_t done, total;
};

struct ring {
    struct cn_collective base;
    struct cn_pair_config pairs;
    struct cn_view view;
    uint32_t progress_timeout_ms;
    struct cn_pair *next, *prev;
    atomic_bool canceled;
    int cancel_fd; // readable once canceled
    int stop_fd;   // the caller's, for the same; -1 for none
    bool dead;
    uint32_t lost;     // index in the member list
    uint32_t sequence; // of the operation
    size_t partial;    // bytes of a float in scratch that is not complete yet
    _Alignas(16) uint8_t scratch[SCRATCH_SIZE];
};

static uint32_t member_of(const struct ring *ring, uint32_t rank)
{
    return ring->view.ranks[rank % ring->view.size];
}

static uint32_t next_member(const struct ring *ring)
{
    return member_of(ring, ring->view.rank + 1);
}

static uint32_t prev_member(const struct ring *ring)
{
    return member_of(ring, ring->view.rank + ring->view.size - 1);
}

// Ends the collective. Closing both streams is how the other members learn of it.
static cn_err fail(struct ring *ring, uint32_t lost, cn_err err)
{
    ring->dead = true;
    ring->lost = lost;
    cn_pair_close(ring->next);
    cn_pair_close(ring->prev);
    ring->next = ring->prev = NULL;
    return err;
}

static void add_span(struct flow *flow, void *data, size_t size, enum arrival arrival)
{
    assert(flow->count < SPANS);
    flow->spans[flow->count++] = (struct span){data, size, arrival};
    flow->total += size;
}

// The rest of the span in progress, or NULL at the end of the flow.
static struct span *current_span(struct flow *flow)
{
    while (flow->at < flow->count && flow->offset == flow->spans[flow->at].size) {
        flow->at++;
        flow->offset = 0;
    }
    return flow->at < flow->count ? &flow->spans[flow->at] : NULL;
}

static void pass(struct flow *flow, size_t size)
{
    flow->offset += size;
    flow->done += size;
}

// A value that is not a number wins, so that no member misses it.
static void reduce(enum arrival how, float *into, const float *from, size_t count)
{
    if (how == ARRIVAL_SUM) {
        for (size_t i = 0; i < count; i++)
            into[i] += from[i];
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (from[i] > into[i] || from[i] != from[i])
            into[i] = from[i];
}

static cn_err send_some(struct ring *ring, struct flow *out, size_t credit)
{
    struct span *span = current_span(out);
    size_t left = span->size - out->offset;
    size_t sent;
    cn_err err;

    if (left > credit - out->done)
        left = credit - out->done;
    err = cn_pair_send(ring->next, span->data + out->offset, left, &sent);
    if (!err)
        pass(out, sent);
    return err;
}

static cn_err receive_some(struct ring *ring, struct flow *in)
{
    struct span *span = current_span(in);
    uint8_t *into = span->data + in->offset;
    size_t left = span->size - in->offset;
    size_t received, whole;
    cn_err err;

    if (span->arrival == ARRIVAL_COPY) {
        err = cn_pair_receive(ring->prev, into, left, &received);
        if (!err)
            pass(in, received);
        return err;
    }
    if (left > SCRATCH_SIZE)
        left = SCRATCH_SIZE;
    err =
        cn_pair_receive(ring->prev, ring->scratch + ring->partial, left - ring->partial, &received);
    if (err)
        return err;
    received += ring->partial;
    whole = received / sizeof(float) * sizeof(float);
    ring->partial = received - whole;
    reduce(span->arrival, (float *)(void *)into, (const float *)(const void *)ring->scratch,
           whole / sizeof(float));
    memmove(ring->scratch, ring->scratch + whole, ring->partial);
    pass(in, whole);
    return CN_OK;
}

// Waits until one side is ready or the time is over.
static cn_err wait_for_peers(struct ring *ring, const struct flow *in, const struct flow *out,
                             size_t credit, uint32_t timeout_ms)
{
    const short gone = POLLERR | POLLHUP | POLLRDHUP;
    bool wants_send = out->done < credit;
    struct pollfd fds[4] = {
        {.fd = ring->cancel_fd, .events = POLLIN},
        {.fd = ring->stop_fd, .events = POLLIN},
        {.fd = in->done < in->total ? cn_pair_descriptor(ring->prev) : -1, .events = POLLIN},
        // The next rank sends nothing, so that its end shows here even while there is nothing to
        // send.
        {.fd = out->done < out->total ? cn_pair_descriptor(ring->next) : -1,
         .events = (short)((wants_send ? POLLOUT : 0) | POLLRDHUP)},
    };
    int count = poll(fds, 4, timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms);

    if (count < 0 && errno != EINTR)
        return fail(ring, next_member(ring), CN_EIO);
    if (count == 0)
        return fail(ring,
                    wants_send && in->done == in->total ? next_member(ring) : prev_member(ring),
                    CN_ETIMEOUT);
    if (fds[1].revents)
        return fail(ring, UINT32_MAX, CN_ECANCELED);
    if (fds[3].revents & gone)
        return fail(ring, next_member(ring), CN_EPEER);
    return CN_OK;
}

// Moves both flows to their ends. The first `credit` bytes may be sent at once, each further one
// when one more has been received: a rank passes on what it has just reduced.
static cn_err transfer(struct ring *ring, struct flow *in, struct flow *out, size_t credit,
                       uint32_t timeout_ms)
{
    ring->partial = 0;
    while (in->done < in->total || out->done < out->total) {
        size_t limit = credit + in->done < out->total ? credit + in->done : out->total;
        bool moved = false;
        cn_err err;

        if (atomic_load_explicit(&ring->canceled, memory_order_relaxed))
            return fail(ring, UINT32_MAX, CN_ECANCELED);
        if (out->done < limit) {
            err = send_some(ring, out, limit);
            if (err && err != CN_EAGAIN)
                return fail(ring, next_member(ring), err);
            moved |= !err;
        }
        if (in->done < in->total) {
            err = receive_some(ring, in);
            if (err && err != CN_EAGAIN)
                return fail(ring, prev_member(ring), err);
            moved |= !err;
        }
        if (moved)
            continue;
        err = wait_for_peers(ring, in, out, limit, timeout_ms);
        if (err)
            return err;
    }
    return CN_OK;
}

// Names the call, so that members that do not issue the same calls notice at once.
static void write_header(const struct ring *ring, uint8_t header[HEADER_SIZE],
                         enum operation operation, uint32_t detail, size_t size)
{
    header[0] = (uint8_t)operation;
    header[1] = (uint8_t)detail;
    cn_put_u16(header + 2, 0);
    cn_put_u32(header + 4, ring->sequence);
    cn_put_u64(header + 8, size);
}

// Receives the previous rank's header (if there is one) and sends ours. Two calls that differ end
// here, before a byte of data has changed.
static cn_err exchange_headers(struct ring *ring, uint8_t ours[HEADER_SIZE], bool receives,
                               bool sends, uint32_t timeout_ms)
{
    uint8_t theirs[HEADER_SIZE] = {0};
    struct flow in = {0}, out = {0};
    cn_err err;

    ring->sequence++;
    if (receives)
        add_span(&in, theirs, HEADER_SIZE, ARRIVAL_COPY);
    if (sends)
        add_span(&out, ours, HEADER_SIZE, ARRIVAL_COPY);
    err = transfer(ring, &in, &out, HEADER_SIZE, timeout_ms);
    if (err || !receives || memcmp(ours, theirs, HEADER_SIZE) == 0)
        return err;
    cn_log(CN_LOG_ERROR, "ring",
           "%s issued call %u (operation %u/%u, %llu bytes), this board call %u "
           "(operation %u/%u, %llu bytes)",
           ring->pairs.members[prev_member(ring)].name, cn_get_u32(theirs + 4), theirs[0],
           theirs[1], (unsigned long long)cn_get_u64(theirs + 8), cn_get_u32(ours + 4), ours[0],
           ours[1], (unsigned long long)cn_get_u64(ours + 8));
    return fail(ring, prev_member(ring), CN_ECONFLICT);
}

// Chunk c is floats [c * count / size, (c + 1) * count / size).
static void add_chunk(const struct ring *ring, struct flow *flow, float *data, size_t count,
                      uint32_t chunk, enum arrival arrival)
{
    size_t size = ring->view.size;
    size_t share = count / size, extra = count % size; // c * count / size without overflow
    size_t begin = chunk * share + chunk * extra / size;
    size_t end = (chunk + 1) * share + (chunk + 1) * extra / size;

    add_span(flow, data + begin, (end - begin) * sizeof(float), arrival);
}

// Step k of 2 * (size - 1) sends chunk rank - k and receives chunk rank - k - 1, which is what step
// k + 1 sends. The first size - 1 steps reduce; then each rank holds one finished chunk, and the
// others copy.
static cn_err run_all_reduce(struct ring *ring, enum cn_reduce how, float *data, size_t count,
                             uint32_t timeout_ms)
{
    enum arrival adds = how == CN_REDUCE_SUM ? ARRIVAL_SUM : ARRIVAL_MAX;
    uint32_t size = ring->view.size;
    uint8_t header[HEADER_SIZE];
    struct flow in = {0}, out = {0};
    cn_err err;

    if (ring->dead)
        return CN_EPEER;
    if (size == 1 || count == 0)
        return CN_OK;
    write_header(ring, header, OPERATION_ALL_REDUCE, how, count);
    err = exchange_headers(ring, header, true, true, timeout_ms);
    if (err)
        return err;
    for (uint32_t k = 0; k < 2 * (size - 1); k++) {
        uint32_t sends = (ring->view.rank + 2 * size - k) % size;

        add_chunk(ring, &out, data, count, sends, ARRIVAL_COPY);
        add_chunk(ring, &in, data, count, (sends + size - 1) % size,
                  k < size - 1 ? adds : ARRIVAL_COPY);
    }
    return transfer(ring, &in, &out, out.spans[0].size, timeout_ms);
}

static cn_err ring_all_reduce(struct cn_collective *collective, enum cn_reduce how, float *data,
                              size_t count)
{
    struct ring *ring = (struct ring *)collective;

    return run_all_reduce(ring, how, data, count, ring->progress_timeout_ms);
}

static cn_err ring_broadcast(struct cn_collective *collective, uint32_t root, void *data,
                             size_t size)
{
    struct ring *ring = (struct ring *)collective;
    bool receives = ring->view.rank != root;
    bool sends = (ring->view.rank + 1) % ring->view.size != root;
    uint8_t header[HEADER_SIZE];
    struct flow in = {0}, out = {0};
    cn_err err;

    assert(root < ring->view.size);
    if (ring->dead)
        return CN_EPEER;
    if (ring->view.size == 1 || size == 0)
        return CN_OK;
    write_header(ring, header, OPERATION_BROADCAST, root, size);
    err = exchange_headers(ring, header, receives, sends, ring->progress_timeout_ms);
    if (err)
        return err;
    if (receives)
        add_span(&in, data, size, ARRIVAL_COPY);
    if (sends)
        add_span(&out, data, size, ARRIVAL_COPY);
    return transfer(ring, &in, &out, receives ? 0 : size, ring->progress_timeout_ms);
}

// One float that every rank has added to before any rank has the result.
static cn_err run_barrier(struct ring *ring, uint32_t timeout_ms)
{
    float token = 0;

    return run_all_reduce(ring, CN_REDUCE_MAX, &token, 1, timeout_ms);
}

static cn_err ring_barrier(struct cn_collective *collective)
{
    struct ring *ring = (struct ring *)collective;

    return run_barrier(ring, ring->progress_timeout_ms);
}

static void ring_cancel(struct cn_collective *collective)
{
    struct ring *ring = (struct ring *)collective;

    atomic_store(&ring->canceled, true);
    (void)eventfd_write(ring->cancel_fd, 1); // can only fail when it is readable already
}

static uint32_t ring_lost(const struct cn_collective *collective)
{
    return ((const struct ring *)collective)->lost;
}

static void ring_close(struct cn_collective *collective)
{
    struct ring *ring = (struct ring *)collective;

    if (!ring)
        return;
    cn_pair_close(ring->next);
    cn_pair_close(ring->prev);
    if (ring->cancel_fd >= 0)
        close(ring->cancel_fd);
    free(ring);
}

static cn_err connect_ring(struct ring *ring, uint32_t timeout_ms)
{
    uint64_t deadline_ms = cn_platform_now_ms() + timeout_ms;
    struct cn_neighbours neighbours;
    uint64_t now_ms;
    cn_err err;

    err = cn_meeting_hold(&ring->pairs, next_member(ring), prev_member(ring), deadline_ms,
                          ring->stop_fd, &neighbours);
    ring->next = neighbours.next;
    ring->prev = neighbours.prev;
    ring->lost = neighbours.lost;
    if (err)
        return err;
    now_ms = cn_platform_now_ms();
    err = run_barrier(ring, now_ms < deadline_ms ? (uint32_t)(deadline_ms - now_ms) : 1);
    ring->lost = UINT32_MAX; // both neighbours came: it failed elsewhere in the ring
    return err;
}

static cn_err ring_open(const struct cn_collective_config *config,
                        struct cn_collective **collective, uint32_t *lost)
{
    struct ring *ring = calloc(1, sizeof(*ring));
    cn_err err = CN_OK;

    assert(config->view.size >= 1 && config->view.size <= CN_GROUP_MAX);
    *lost = UINT32_MAX;
    if (!ring)
        return CN_ENOMEM;
    ring->stop_fd = config->cancel_fd;
    ring->base.ops = &cn_collective_tcp;
    ring->view = config->view;
    ring->progress_timeout_ms = config->progress_timeout_ms;
    ring->lost = UINT32_MAX;
    ring->pairs = (struct cn_pair_config){
        .members = config->members,
        .count = config->member_count,
        .self = config->view.ranks[config->view.rank],
        .purpose = CN_PAIR_DATA,
        .epoch = config->view.epoch,
        .handshake_ms = HANDSHAKE_MS,
        .silence_ms = config->progress_timeout_ms,
    };
    ring->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ring->cancel_fd < 0)
        err = cn_err_from_errno(errno);
    if (!err && ring->view.size > 1)
        err = connect_ring(ring, config->open_timeout_ms);
    if (err) {
        *lost = ring->lost;
        ring_close(&ring->base);
        return err;
    }
    *collective = &ring->base;
    return CN_OK;
}

const struct cn_collective_ops cn_collective_tcp = {
    .name = "tcp",
    .open = ring_open,
    .close = ring_close,
    .all_reduce = ring_all_reduce,
    .broadcast = ring_broadcast,
    .barrier = ring_barrier,
    .cancel = ring_cancel,
    .lost = ring_lost,
};
