// README.md explains the order of the chunks of a ring, PROTOCOL.md what is on the wire.
#include "ports/tcp/collective_tcp.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ports/tcp/call_header.h"
#include "ports/tcp/mesh.h"
#include "ports/tcp/stream.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define HANDSHAKE_MS 2000
#define DIRECT_MAX 8192 // bytes that every member sends to every other one instead of around a ring
#define SETS_MAX 64     // sets with a sequence of their own at a time

struct sequence {
    uint32_t set;
    uint32_t number; // of the last call
};

struct tcp {
    struct cn_collective base;
    struct cn_pair_config pairs;
    struct cn_view view;
    struct cn_mesh mesh;
    struct cn_set whole;
    uint32_t progress_timeout_ms;
    atomic_bool canceled;
    int cancel_fd; // readable once canceled
    int stop_fd;   // the caller's, for the same; -1 for none
    bool dead;
    uint32_t lost; // index in the member list
    struct sequence sequences[SETS_MAX];
    uint32_t sequence_count;
    uint8_t *direct;  // owned: what the others sent, DIRECT_MAX for each; then what goes to them
    uint16_t *halves; // owned: room for narrow sums
    size_t half_count;
    uint8_t ours[CN_CALL_HEADER_SIZE],
        theirs[CN_GROUP_MAX][CN_CALL_HEADER_SIZE]; // of the call; by member
    struct cn_exchange exchange;
};

// A call and this board's place in it.
struct job {
    const struct cn_collective_call *call;
    const struct cn_set *set;
    uint32_t place; // of this board in the set
    uint32_t number;
    size_t element; // bytes
    uint32_t timeout_ms;
    char doing[CN_CALL_DESCRIPTION_SIZE];
};

static uint32_t member_of(const struct tcp *tcp, uint32_t rank)
{
    return tcp->view.ranks[rank];
}

// The places of all other members of a set, as bits.
static uint32_t others(const struct job *job)
{
    return ~(1u << job->place);
}

// Ends the collective. Closing all pairs is how the other members learn of it.
static cn_err fail(struct tcp *tcp, uint32_t lost, cn_err err)
{
    tcp->dead = true;
    tcp->lost = lost;
    cn_mesh_close(&tcp->mesh);
    return err;
}

static void begin(struct tcp *tcp, const struct job *job)
{
    struct cn_exchange *exchange = &tcp->exchange;

    exchange->count = 0;
    exchange->type = job->call->type;
    exchange->how = job->call->how;
    exchange->members = job->set->size;
    exchange->names = tcp->pairs.members;
    exchange->doing = job->doing;
    exchange->timeout_ms = job->timeout_ms;
    exchange->stop_fds[0] = tcp->cancel_fd;
    exchange->stop_fds[1] = tcp->stop_fd;
    exchange->canceled = &tcp->canceled;
    exchange->expected = tcp->ours;
}

// The stream to the member at a place of the set; places wrap around.
static struct cn_stream *stream_to(struct tcp *tcp, const struct job *job, uint32_t place)
{
    uint32_t rank = job->set->ranks[place % job->set->size];

    return cn_exchange_stream(&tcp->exchange, tcp->mesh.pairs[rank], member_of(tcp, rank));
}

static void write_header(const struct job *job, uint8_t header[CN_CALL_HEADER_SIZE])
{
    const struct cn_collective_call *call = job->call;
    bool directed = call->kind == CN_COLLECTIVE_SEND || call->kind == CN_COLLECTIVE_RECEIVE;

    // Both ends of a message say the same.
    header[0] = (uint8_t)(directed ? CN_COLLECTIVE_SEND : call->kind);
    header[1] = (uint8_t)call->how;
    header[2] = (uint8_t)(call->type | call->wire << 4);
    header[3] = (uint8_t)(call->kind == CN_COLLECTIVE_BROADCAST ? call->peer : 0);
    cn_put_u32(header + 4, directed ? 0 : job->number);
    cn_put_u64(header + 8, call->count);
    cn_put_u32(header + 16, job->set->id);
    cn_put_u32(header + 20, call->fingerprint);
}

static void tell_difference(const struct tcp *tcp, uint32_t member)
{
    char mine[CN_CALL_DESCRIPTION_SIZE], other[CN_CALL_DESCRIPTION_SIZE];

    cn_call_header_describe(tcp->ours, mine);
    cn_call_header_describe(tcp->theirs[member], other);
    cn_log(CN_LOG_ERROR, "collective", "%s is at %s; %s (this board) is at %s",
           tcp->pairs.members[member].name, other, tcp->pairs.members[tcp->pairs.self].name, mine);
}

static cn_err finish(struct tcp *tcp)
{
    cn_err err = cn_exchange_run(&tcp->exchange);

    if (err == CN_ECONFLICT)
        tell_difference(tcp, tcp->exchange.lost);
    return err ? fail(tcp, tcp->exchange.lost, err) : CN_OK;
}

// Adds our header to what goes to the places in sends (bits), and theirs to what comes from those
// in receives: calls that differ end there, before a byte of data has changed.
static void add_headers(struct tcp *tcp, const struct job *job, uint32_t receives, uint32_t sends)
{
    write_header(job, tcp->ours);
    for (uint32_t p = 0; p < job->set->size; p++) {
        uint8_t *theirs = tcp->theirs[member_of(tcp, job->set->ranks[p])];

        if (sends >> p & 1)
            cn_flow_add(&stream_to(tcp, job, p)->out, tcp->ours, CN_CALL_HEADER_SIZE,
                        CN_ARRIVAL_COPY);
        if (receives >> p & 1)
            cn_flow_add(&stream_to(tcp, job, p)->in, theirs, CN_CALL_HEADER_SIZE, CN_ARRIVAL_MATCH);
    }
}

static cn_err exchange_headers(struct tcp *tcp, const struct job *job, uint32_t receives,
                               uint32_t sends)
{
    begin(tcp, job);
    add_headers(tcp, job, receives, sends);
    return finish(tcp);
}

static uint32_t place_after(const struct job *job, uint32_t steps)
{
    return (job->place + steps) % job->set->size;
}

// Adds share number share, which may be counted beyond the set's size, to a flow.
static void add_share(const struct job *job, struct cn_flow *flow, uint32_t share,
                      enum cn_arrival arrival)
{
    uint32_t size = job->set->size;
    size_t first;
    size_t count = cn_reduce_share(job->call->count, size, share % size, &first);

    cn_flow_add(flow, (uint8_t *)job->call->data + first * job->element, count * job->element,
                arrival);
}

// Steps [from, to) of the ring's 2 * (size - 1). Step k sends share place - k - 1 and receives
// share place - k - 2, which is what step k + 1 sends. The first size - 1 steps reduce, after which
// each member has its own share; the others copy.
static cn_err run_ring(struct tcp *tcp, const struct job *job, uint32_t from, uint32_t to)
{
    uint32_t size = job->set->size;
    uint32_t next = place_after(job, 1), prev = place_after(job, size - 1);
    struct cn_stream *in, *out;
    cn_err err = exchange_headers(tcp, job, 1u << prev, 1u << next);

    if (err)
        return err;
    begin(tcp, job);
    in = stream_to(tcp, job, prev);
    out = stream_to(tcp, job, next);
    for (uint32_t k = from; k < to; k++) {
        uint32_t share = job->place + 2 * size - k - 1;

        add_share(job, &out->out, share, CN_ARRIVAL_COPY);
        add_share(job, &in->in, share - 1,
                  k + 2 < size    ? CN_ARRIVAL_REDUCE
                  : k + 2 == size ? CN_ARRIVAL_FINISH
                                  : CN_ARRIVAL_COPY);
    }
    out->after = &in->in;
    out->credit = out->out.spans[0].size;
    return finish(tcp);
}

// Everyone sends everything to everyone and reduces by itself, in the order of the set. Header and
// values go together: one flight, one record.
static cn_err run_direct(struct tcp *tcp, const struct job *job)
{
    const struct cn_collective_call *call = job->call;
    size_t bytes = call->count * job->element;
    uint8_t *result = tcp->direct, *packet = tcp->direct + (size_t)tcp->view.size * DIRECT_MAX;
    cn_err err;

    begin(tcp, job);
    add_headers(tcp, job, others(job), 0);
    memcpy(packet, tcp->ours, CN_CALL_HEADER_SIZE);
    memcpy(packet + CN_CALL_HEADER_SIZE, call->data, bytes);
    for (uint32_t p = 0; p < job->set->size; p++) {
        uint8_t *slot = tcp->direct + (size_t)p * DIRECT_MAX;

        if (p == job->place) {
            memcpy(slot, call->data, bytes);
            continue;
        }
        cn_flow_add(&stream_to(tcp, job, p)->out, packet, CN_CALL_HEADER_SIZE + bytes,
                    CN_ARRIVAL_COPY);
        cn_flow_add(&stream_to(tcp, job, p)->in, slot, bytes, CN_ARRIVAL_COPY);
    }
    err = finish(tcp);
    if (err)
        return err;
    for (uint32_t p = 1; p < job->set->size; p++)
        cn_reduce_into(call->type, call->how, result, tcp->direct + (size_t)p * DIRECT_MAX,
                       call->count);
    cn_reduce_finish(call->type, call->how, result, call->count, job->set->size);
    memcpy(call->data, result, bytes);
    return CN_OK;
}

static cn_err reserve_halves(struct tcp *tcp, size_t count)
{
    uint16_t *halves;

    if (count <= tcp->half_count)
        return CN_OK;
    halves = realloc(tcp->halves, count * sizeof(*halves));
    if (!halves)
        return fail(tcp, UINT32_MAX, CN_ENOMEM);
    tcp->halves = halves;
    tcp->half_count = count;
    return CN_OK;
}

// With parts: each place gets its share of ours, and we get ours of theirs, one part behind the
// other. Without: each place sends its share to all.
static void swap_halves(struct tcp *tcp, const struct job *job, uint16_t *sums, uint16_t *parts)
{
    size_t own_first, count = job->call->count;
    size_t own = cn_reduce_share(count, job->set->size, job->place, &own_first);

    begin(tcp, job);
    for (uint32_t p = 0, k = 0; p < job->set->size; p++) {
        size_t first, share = cn_reduce_share(count, job->set->size, p, &first);
        struct cn_stream *stream;

        if (p == job->place)
            continue;
        stream = stream_to(tcp, job, p);
        if (parts) {
            cn_flow_add(&stream->out, sums + first, 2 * share, CN_ARRIVAL_COPY);
            cn_flow_add(&stream->in, parts + k++ * own, 2 * own, CN_ARRIVAL_COPY);
        } else {
            cn_flow_add(&stream->out, sums + own_first, 2 * own, CN_ARRIVAL_COPY);
            cn_flow_add(&stream->in, sums + first, 2 * share, CN_ARRIVAL_COPY);
        }
    }
}

// Each place gets its share from all others as bfloat16, adds in float32, rounds once and, unless
// each keeps its own share only, sends the sums to all.
static cn_err run_narrow(struct tcp *tcp, const struct job *job)
{
    uint32_t size = job->set->size;
    size_t first, own = cn_reduce_share(job->call->count, size, job->place, &first);
    float *data = job->call->data;
    uint16_t *sums, *parts;
    cn_err err = reserve_halves(tcp, job->call->count + (size - 1) * own);

    if (!err)
        err = exchange_headers(tcp, job, others(job), others(job));
    if (err)
        return err;
    sums = tcp->halves;
    parts = sums + job->call->count;
    cn_reduce_narrow(sums, data, job->call->count);
    swap_halves(tcp, job, sums, parts);
    err = finish(tcp);
    if (err)
        return err;
    for (uint32_t k = 0; k + 1 < size; k++)
        cn_reduce_widen_add(data + first, parts + k * own, own);
    cn_reduce_narrow(sums + first, data + first, own);
    if (job->call->kind == CN_COLLECTIVE_REDUCE_SCATTER) {
        cn_reduce_widen(data + first, sums + first, own);
        return CN_OK;
    }
    swap_halves(tcp, job, sums, NULL);
    err = finish(tcp);
    if (!err)
        cn_reduce_widen(data, sums, job->call->count);
    return err;
}

static cn_err run_all_reduce(struct tcp *tcp, const struct job *job)
{
    if (job->call->count * job->element <= DIRECT_MAX)
        return run_direct(tcp, job);
    if (job->call->wire)
        return run_narrow(tcp, job);
    return run_ring(tcp, job, 0, 2 * (job->set->size - 1));
}

static cn_err run_reduce_scatter(struct tcp *tcp, const struct job *job)
{
    if (job->call->wire && job->call->count * job->element > DIRECT_MAX)
        return run_narrow(tcp, job);
    return run_ring(tcp, job, 0, job->set->size - 1);
}

// From the root around the ring; the member before the root only receives.
static cn_err run_broadcast(struct tcp *tcp, const struct job *job, uint32_t root)
{
    const struct cn_collective_call *call = job->call;
    uint32_t size = job->set->size;
    bool receives = job->place != root, sends = place_after(job, 1) != root;
    uint32_t next = place_after(job, 1), prev = place_after(job, size - 1);
    struct cn_stream *in = NULL, *out;
    cn_err err = exchange_headers(tcp, job, receives ? 1u << prev : 0, sends ? 1u << next : 0);

    if (err)
        return err;
    begin(tcp, job);
    if (receives) {
        in = stream_to(tcp, job, prev);
        cn_flow_add(&in->in, call->data, call->count, CN_ARRIVAL_COPY);
    }
    if (sends) {
        out = stream_to(tcp, job, next);
        cn_flow_add(&out->out, call->data, call->count, CN_ARRIVAL_COPY);
        out->after = in ? &in->in : NULL;
    }
    return finish(tcp);
}

static cn_err run_message(struct tcp *tcp, const struct job *job, uint32_t peer)
{
    const struct cn_collective_call *call = job->call;
    bool sends = call->kind == CN_COLLECTIVE_SEND;
    struct cn_stream *stream;
    cn_err err = exchange_headers(tcp, job, 1u << peer, 1u << peer);

    if (err)
        return err;
    begin(tcp, job);
    stream = stream_to(tcp, job, peer);
    cn_flow_add(sends ? &stream->out : &stream->in, call->data, call->count, CN_ARRIVAL_COPY);
    return finish(tcp);
}

static cn_err run_barrier(struct tcp *tcp, const struct job *job)
{
    return exchange_headers(tcp, job, others(job), others(job));
}

// The place of a rank in a set, or the set's size.
static uint32_t place_of(const struct cn_set *set, uint32_t rank)
{
    uint32_t p = 0;

    while (p < set->size && set->ranks[p] != rank)
        p++;
    return p;
}

// The number of the next call on a set.
static cn_err next_number(struct tcp *tcp, uint32_t set, uint32_t *number)
{
    uint32_t i = 0;

    while (i < tcp->sequence_count && tcp->sequences[i].set != set)
        i++;
    if (i == SETS_MAX)
        return CN_ERANGE;
    if (i == tcp->sequence_count)
        tcp->sequences[tcp->sequence_count++] = (struct sequence){.set = set};
    *number = ++tcp->sequences[i].number;
    return CN_OK;
}

static cn_err check(const struct tcp *tcp, const struct job *job)
{
    const struct cn_set *set = job->set;

    if (set->size < 1 || set->size > tcp->view.size || job->place == set->size)
        return CN_EINVAL;
    if (job->call->wire && (job->call->wire != CN_BFLOAT16 || job->call->type != CN_FLOAT32 ||
                            job->call->how != CN_REDUCE_SUM))
        return CN_EINVAL;
    for (uint32_t p = 0; p < set->size; p++)
        if (set->ranks[p] >= tcp->view.size || (p && set->ranks[p] <= set->ranks[p - 1]))
            return CN_EINVAL;
    return CN_OK;
}

static cn_err run_call(struct tcp *tcp, const struct cn_collective_call *call, uint32_t timeout_ms)
{
    const struct cn_set *set = call->set ? call->set : &tcp->whole;
    struct job job = {.call = call,
                      .set = set,
                      .place = place_of(set, tcp->view.rank),
                      .element = cn_number_size(call->type),
                      .timeout_ms = timeout_ms};
    uint32_t peer = place_of(set, call->peer);
    uint8_t header[CN_CALL_HEADER_SIZE];
    cn_err err = check(tcp, &job);

    if (err)
        return err;
    if (tcp->dead)
        return CN_EPEER;
    err = next_number(tcp, set->id, &job.number);
    if (err)
        return err;
    if (set->size == 1 || (!call->count && call->kind != CN_COLLECTIVE_BARRIER))
        return CN_OK;
    write_header(&job, header);
    cn_call_header_describe(header, job.doing);
    switch (call->kind) {
    case CN_COLLECTIVE_ALL_REDUCE:
        return run_all_reduce(tcp, &job);
    case CN_COLLECTIVE_REDUCE_SCATTER:
        return run_reduce_scatter(tcp, &job);
    case CN_COLLECTIVE_ALL_GATHER:
        return run_ring(tcp, &job, set->size - 1, 2 * (set->size - 1));
    case CN_COLLECTIVE_BROADCAST:
        return peer < set->size ? run_broadcast(tcp, &job, peer) : CN_EINVAL;
    case CN_COLLECTIVE_SEND:
    case CN_COLLECTIVE_RECEIVE:
        return peer < set->size && peer != job.place ? run_message(tcp, &job, peer) : CN_EINVAL;
    case CN_COLLECTIVE_BARRIER:
        break;
    }
    return run_barrier(tcp, &job);
}

// Every two members are connected.
static cn_err tcp_prepare(struct cn_collective *collective, const struct cn_set *sets,
                          uint32_t count)
{
    (void)sets;
    (void)count;
    return ((struct tcp *)collective)->dead ? CN_EPEER : CN_OK;
}

static cn_err tcp_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct tcp *tcp = (struct tcp *)collective;

    return run_call(tcp, call, tcp->progress_timeout_ms);
}

static void tcp_cancel(struct cn_collective *collective)
{
    struct tcp *tcp = (struct tcp *)collective;

    atomic_store(&tcp->canceled, true);
    (void)eventfd_write(tcp->cancel_fd, 1); // can only fail when it is readable already
}

static cn_err tcp_check(struct cn_collective *collective)
{
    struct tcp *tcp = (struct tcp *)collective;
    struct pollfd fds[CN_GROUP_MAX];

    if (tcp->dead)
        return CN_EPEER;
    for (uint32_t r = 0; r < tcp->view.size; r++)
        fds[r] =
            (struct pollfd){.fd = tcp->mesh.pairs[r] ? cn_pair_descriptor(tcp->mesh.pairs[r]) : -1,
                            .events = POLLRDHUP};
    if (poll(fds, tcp->view.size, 0) <= 0)
        return CN_OK;
    for (uint32_t r = 0; r < tcp->view.size; r++)
        if (fds[r].revents & (POLLRDHUP | POLLERR | POLLHUP))
            return fail(tcp, member_of(tcp, r), CN_EPEER);
    return CN_OK;
}

static uint32_t tcp_lost(const struct cn_collective *collective)
{
    return ((const struct tcp *)collective)->lost;
}

static void tcp_close(struct cn_collective *collective)
{
    struct tcp *tcp = (struct tcp *)collective;

    if (!tcp)
        return;
    cn_mesh_close(&tcp->mesh);
    if (tcp->cancel_fd >= 0)
        close(tcp->cancel_fd);
    free(tcp->direct);
    free(tcp->halves);
    free(tcp);
}

// Connects all, and returns when all have connected.
static cn_err connect_all(struct tcp *tcp, uint32_t timeout_ms)
{
    const struct cn_collective_call barrier = {.kind = CN_COLLECTIVE_BARRIER};
    uint64_t deadline_ms = cn_platform_now_ms() + timeout_ms;
    uint64_t now_ms;
    cn_err err =
        cn_mesh_open(&tcp->pairs, &tcp->view, deadline_ms, tcp->stop_fd, &tcp->mesh, &tcp->lost);

    if (err)
        return err;
    now_ms = cn_platform_now_ms();
    return run_call(tcp, &barrier, now_ms < deadline_ms ? (uint32_t)(deadline_ms - now_ms) : 1);
}

static void configure(struct tcp *tcp, const struct cn_collective_config *config)
{
    tcp->base.ops = &cn_collective_tcp;
    tcp->stop_fd = config->cancel_fd;
    tcp->view = config->view;
    tcp->progress_timeout_ms = config->progress_timeout_ms;
    tcp->lost = UINT32_MAX;
    tcp->whole.size = config->view.size;
    for (uint32_t r = 0; r < config->view.size; r++)
        tcp->whole.ranks[r] = r;
    tcp->pairs = (struct cn_pair_config){
        .members = config->members,
        .count = config->member_count,
        .self = config->view.ranks[config->view.rank],
        .purpose = CN_PAIR_DATA,
        .epoch = config->view.epoch,
        .handshake_ms = HANDSHAKE_MS,
        .silence_ms = config->progress_timeout_ms,
        .aes = cn_pair_has_aes(),
    };
}

static cn_err tcp_open(const struct cn_collective_config *config, struct cn_collective **collective,
                       uint32_t *lost)
{
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    cn_err err = CN_OK;

    assert(config->view.size >= 1 && config->view.size <= CN_GROUP_MAX);
    *lost = UINT32_MAX;
    if (!tcp)
        return CN_ENOMEM;
    configure(tcp, config);
    tcp->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->cancel_fd < 0)
        err = cn_err_from_errno(errno);
    tcp->direct = malloc((size_t)(config->view.size + 1) * DIRECT_MAX + CN_CALL_HEADER_SIZE);
    if (!tcp->direct)
        err = CN_ENOMEM;
    if (!err && config->view.size > 1)
        err = connect_all(tcp, config->open_timeout_ms);
    if (err) {
        *lost = tcp->lost;
        tcp_close(&tcp->base);
        return err;
    }
    *collective = &tcp->base;
    return CN_OK;
}

const struct cn_collective_ops cn_collective_tcp = {
    .name = "tcp",
    .open = tcp_open,
    .close = tcp_close,
    .prepare = tcp_prepare,
    .run = tcp_run,
    .cancel = tcp_cancel,
    .check = tcp_check,
    .lost = tcp_lost,
};
