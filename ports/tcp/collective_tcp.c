// collective_tcp.c - the calls of the collective, and its opening and closing.
//
// README.md explains in which order a ring moves the shares. PROTOCOL.md specifies what is on the
// wire.
#include "ports/tcp/collective_tcp.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ports/tcp/narrow.h"
#include "ports/tcp/tcp_call.h"
#include "runtime/base/log.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define HANDSHAKE_MS 2000
#define DIRECT_MAX 8192 // bytes; up to here an all-reduce is direct instead of a ring

// Adds a share of the call's data to a flow. share may exceed the set's size; it wraps around.
static void add_share(const struct cn_tcp_job *job, struct cn_flow *flow, uint32_t share,
                      enum cn_arrival arrival)
{
    uint32_t size = job->set->size;
    size_t first;
    size_t count = cn_reduce_share(job->call->count, size, share % size, &first);

    cn_flow_add(flow, (uint8_t *)job->call->data + first * job->element, count * job->element,
                arrival);
}

// Runs steps [from, to) of the ring's 2 * (size - 1). Step k sends share place - k - 1 and receives
// share place - k - 2, which step k + 1 sends. The first size - 1 steps reduce; after them each
// member holds its own share, finished. The other steps copy.
static cn_err run_ring(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint32_t from, uint32_t to)
{
    uint32_t size = job->set->size;
    uint32_t next = cn_tcp_call_place_after(job, 1), prev = cn_tcp_call_place_after(job, size - 1);
    struct cn_stream *in, *out;
    cn_err err = cn_tcp_call_exchange_headers(tcp, job, 1u << prev, 1u << next);

    if (err)
        return err;
    cn_tcp_call_begin(tcp, job);
    in = cn_tcp_call_stream(tcp, job, prev);
    out = cn_tcp_call_stream(tcp, job, next);
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
    return cn_tcp_call_finish(tcp);
}

// Sends all values to all other members and reduces locally, in the order of the set. Header and
// values go together: one flight, one record.
static cn_err run_direct(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    const struct cn_collective_call *call = job->call;
    size_t bytes = call->count * job->element;
    uint8_t *result = tcp->direct, *packet = tcp->direct + (size_t)tcp->view.size * DIRECT_MAX;
    cn_err err;

    cn_tcp_call_begin(tcp, job);
    cn_tcp_call_add_headers(tcp, job, cn_tcp_call_others(job), 0);
    memcpy(packet, tcp->ours, CN_CALL_HEADER_SIZE);
    memcpy(packet + CN_CALL_HEADER_SIZE, call->data, bytes);
    for (uint32_t p = 0; p < job->set->size; p++) {
        uint8_t *slot = tcp->direct + (size_t)p * DIRECT_MAX;

        if (p == job->place) {
            memcpy(slot, call->data, bytes);
            continue;
        }
        cn_flow_add(&cn_tcp_call_stream(tcp, job, p)->out, packet, CN_CALL_HEADER_SIZE + bytes,
                    CN_ARRIVAL_COPY);
        cn_flow_add(&cn_tcp_call_stream(tcp, job, p)->in, slot, bytes, CN_ARRIVAL_COPY);
    }
    err = cn_tcp_call_finish(tcp);
    if (err)
        return err;
    for (uint32_t p = 1; p < job->set->size; p++)
        cn_reduce_into(call->type, call->how, result, tcp->direct + (size_t)p * DIRECT_MAX,
                       call->count);
    cn_reduce_finish(call->type, call->how, result, call->count, job->set->size);
    memcpy(call->data, result, bytes);
    return CN_OK;
}

static cn_err run_all_reduce(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    if (job->call->count * job->element <= DIRECT_MAX)
        return run_direct(tcp, job);
    if (job->call->wire)
        return cn_narrow_run(tcp, job);
    return run_ring(tcp, job, 0, 2 * (job->set->size - 1));
}

static cn_err run_reduce_scatter(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    if (job->call->wire && job->call->count * job->element > DIRECT_MAX)
        return cn_narrow_run(tcp, job);
    return run_ring(tcp, job, 0, job->set->size - 1);
}

// Passes the root's bytes around the ring. The member before the root only receives.
static cn_err run_broadcast(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint32_t root)
{
    const struct cn_collective_call *call = job->call;
    uint32_t size = job->set->size;
    bool receives = job->place != root, sends = cn_tcp_call_place_after(job, 1) != root;
    uint32_t next = cn_tcp_call_place_after(job, 1), prev = cn_tcp_call_place_after(job, size - 1);
    struct cn_stream *in = NULL, *out;
    cn_err err =
        cn_tcp_call_exchange_headers(tcp, job, receives ? 1u << prev : 0, sends ? 1u << next : 0);

    if (err)
        return err;
    cn_tcp_call_begin(tcp, job);
    if (receives) {
        in = cn_tcp_call_stream(tcp, job, prev);
        cn_flow_add(&in->in, call->data, call->count, CN_ARRIVAL_COPY);
    }
    if (sends) {
        out = cn_tcp_call_stream(tcp, job, next);
        cn_flow_add(&out->out, call->data, call->count, CN_ARRIVAL_COPY);
        out->after = in ? &in->in : NULL;
    }
    return cn_tcp_call_finish(tcp);
}

static cn_err run_message(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint32_t peer)
{
    const struct cn_collective_call *call = job->call;
    bool sends = call->kind == CN_COLLECTIVE_SEND;
    struct cn_stream *stream;
    cn_err err = cn_tcp_call_exchange_headers(tcp, job, 1u << peer, 1u << peer);

    if (err)
        return err;
    cn_tcp_call_begin(tcp, job);
    stream = cn_tcp_call_stream(tcp, job, peer);
    cn_flow_add(sends ? &stream->out : &stream->in, call->data, call->count, CN_ARRIVAL_COPY);
    return cn_tcp_call_finish(tcp);
}

static cn_err run_barrier(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    return cn_tcp_call_exchange_headers(tcp, job, cn_tcp_call_others(job), cn_tcp_call_others(job));
}

// Returns the place of a rank in a set, or the set's size if it is not in it.
static uint32_t place_of(const struct cn_set *set, uint32_t rank)
{
    uint32_t p = 0;

    while (p < set->size && set->ranks[p] != rank)
        p++;
    return p;
}

// Makes room for one more set. Jobs that choose trainers by step or round use new sets during the
// whole epoch.
static cn_err reserve_sequence(struct cn_tcp *tcp)
{
    uint32_t room = 2 * tcp->sequence_room + 16;
    struct cn_tcp_sequence *sequences;

    if (tcp->sequence_count < tcp->sequence_room)
        return CN_OK;
    sequences = realloc(tcp->sequences, room * sizeof(*sequences));
    if (!sequences)
        return CN_ENOMEM;
    tcp->sequences = sequences;
    tcp->sequence_room = room;
    return CN_OK;
}

// Returns whether all members of the set take part in the call, so that all of them can count it. A
// message between two members of a larger set is unknown to the others.
static bool is_counted(const struct cn_collective_call *call, const struct cn_set *set)
{
    bool message = call->kind == CN_COLLECTIVE_SEND || call->kind == CN_COLLECTIVE_RECEIVE;

    return !message || set->size <= 2;
}

// Counts this call on its set and returns its number.
static cn_err next_number(struct cn_tcp *tcp, uint32_t set, uint32_t *number)
{
    cn_err err = reserve_sequence(tcp);
    uint32_t i = 0;

    if (err)
        return err;
    while (i < tcp->sequence_count && tcp->sequences[i].set != set)
        i++;
    if (i == tcp->sequence_count)
        tcp->sequences[tcp->sequence_count++] = (struct cn_tcp_sequence){.set = set};
    *number = ++tcp->sequences[i].number;
    return CN_OK;
}

// Checks that the set is a part of the view that contains this board, and that wire suits the call.
static cn_err check(const struct cn_tcp *tcp, const struct cn_tcp_job *job)
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

static cn_err run_call(struct cn_tcp *tcp, const struct cn_collective_call *call,
                       uint32_t timeout_ms)
{
    const struct cn_set *set = call->set ? call->set : &tcp->whole;
    struct cn_tcp_job job = {.call = call,
                             .set = set,
                             .place = place_of(set, tcp->view.rank),
                             .element = cn_number_size(call->type),
                             .timeout_ms = timeout_ms};
    uint32_t peer = place_of(set, call->peer);
    cn_err err = check(tcp, &job);

    if (err)
        return err;
    if (tcp->dead)
        return CN_EPEER;
    if (is_counted(call, set))
        err = next_number(tcp, set->id, &job.number);
    if (err)
        return err;
    if (set->size == 1 || (!call->count && call->kind != CN_COLLECTIVE_BARRIER))
        return CN_OK;
    cn_tcp_call_describe(&job);
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

// Has nothing to do: any two members are connected already.
static cn_err tcp_prepare(struct cn_collective *collective, const struct cn_set *sets,
                          uint32_t count)
{
    (void)sets;
    (void)count;
    return ((struct cn_tcp *)collective)->dead ? CN_EPEER : CN_OK;
}

static cn_err tcp_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct cn_tcp *tcp = (struct cn_tcp *)collective;

    return run_call(tcp, call, tcp->progress_timeout_ms);
}

static void tcp_cancel(struct cn_collective *collective, bool gives_up)
{
    struct cn_tcp *tcp = (struct cn_tcp *)collective;

    atomic_store(&tcp->gives_up, gives_up);
    atomic_store(&tcp->canceled, true);
    (void)eventfd_write(tcp->cancel_fd, 1); // fails only when it is readable already
}

static cn_err tcp_check(struct cn_collective *collective)
{
    struct cn_tcp *tcp = (struct cn_tcp *)collective;
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
            return cn_tcp_call_fail(tcp, tcp->view.ranks[r], CN_EPEER);
    return CN_OK;
}

static uint32_t tcp_lost(const struct cn_collective *collective)
{
    return ((const struct cn_tcp *)collective)->lost;
}

static void tcp_close(struct cn_collective *collective)
{
    struct cn_tcp *tcp = (struct cn_tcp *)collective;

    if (!tcp)
        return;
    cn_mesh_close(&tcp->mesh);
    if (tcp->cancel_fd >= 0)
        close(tcp->cancel_fd);
    free(tcp->sequences);
    free(tcp->direct);
    free(tcp->halves);
    free(tcp);
}

// Connects to all members, then runs a barrier, so that it returns when all have connected to all.
static cn_err connect_all(struct cn_tcp *tcp, uint32_t timeout_ms)
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

static void configure(struct cn_tcp *tcp, const struct cn_collective_config *config)
{
    tcp->base.ops = &cn_collective_tcp;
    tcp->stop_fd = config->cancel_fd;
    tcp->view = config->view;
    tcp->progress_timeout_ms = config->progress_timeout_ms;
    tcp->lossy_paths = config->lossy_paths;
    tcp->lost = UINT32_MAX;
    atomic_store(&tcp->gives_up, true); // an opening that is canceled always tells the others
    tcp->whole.size = config->view.size;
    for (uint32_t r = 0; r < config->view.size; r++)
        tcp->whole.ranks[r] = r;
    tcp->pairs = (struct cn_pair_config){
        .members = config->members,
        .count = config->member_count,
        .self = config->view.ranks[config->view.rank],
        .listen = config->listen,
        .purpose = CN_PAIR_DATA,
        .epoch = config->view.epoch,
        .handshake_ms = HANDSHAKE_MS,
        .silence_ms = config->progress_timeout_ms,
        .lines = config->lines,
        .lossy_paths = config->lossy_paths ? *config->lossy_paths : 0,
        .aes = cn_pair_has_aes(),
    };
}

static cn_err tcp_open(const struct cn_collective_config *config, struct cn_collective **collective,
                       uint32_t *lost)
{
    struct cn_tcp *tcp = calloc(1, sizeof(*tcp));
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
    atomic_store(&tcp->gives_up, false);
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
