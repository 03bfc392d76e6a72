// calls.c - sums and gathers, through a piece of device memory.
//
// Each pass copies a part to the device, has NCCL reduce or exchange it, waits, and copies the
// result back.
//
// Narrow sums (cn_collective_call.wire) do not use ncclAllReduce of bfloat16. That adds in
// bfloat16, once for each member of the ring (NVIDIA/nccl#1026), but the contract wants float32.
// Instead:
// - The host rounds the numbers, which halves what is copied to the device.
// - Each place receives its share from all others by send and receive.
// - The host adds the shares in the order of places and rounds once.
// - The sums are gathered.
// The bytes on the wire and the bits of the result are those of ports/tcp.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ports/nccl/collective_nccl.h"
#include "ports/nccl/nccl_private.h"
#include "runtime/group/reduce.h"

// A call while it runs.
struct job {
    const struct cn_collective_call *call;
    const struct nccl_member *comm;
    uint32_t size, place; // members of the communicator, and this one's rank
    size_t element;       // size of an element in bytes
    int type;             // enum nccl_type
};

bool nccl_takes_call(const struct cn_collective_call *call)
{
    bool sums = call->how == CN_REDUCE_SUM || call->how == CN_REDUCE_AVERAGE;
    bool narrow = call->wire == CN_BFLOAT16 && call->type == CN_FLOAT32 &&
                  call->how == CN_REDUCE_SUM && call->kind != CN_COLLECTIVE_ALL_GATHER;

    return (call->kind == CN_COLLECTIVE_ALL_REDUCE || call->kind == CN_COLLECTIVE_REDUCE_SCATTER ||
            call->kind == CN_COLLECTIVE_ALL_GATHER) &&
           sums && (!call->wire || narrow) &&
           call->count * cn_number_size(call->type) >= CN_NCCL_BYTES_MIN &&
           (!call->set || call->set->size > 1);
}

static struct job job_of(const struct cn_collective_call *call, const struct nccl_member *comm)
{
    static const int types[] = {[CN_FLOAT32] = NCCL_FLOAT32,
                                [CN_BFLOAT16] = NCCL_BFLOAT16,
                                [CN_FLOAT16] = NCCL_FLOAT16,
                                [CN_INT64] = NCCL_INT64};

    return (struct job){.call = call,
                        .comm = comm,
                        .size = comm->size,
                        .place = comm->place,
                        .element = cn_number_size(call->type),
                        .type = types[call->type]};
}

// Waits for the work that was given to NCCL. taken: whether NCCL accepted it.
static cn_err finish(struct nccl *nccl, const struct job *job, bool taken)
{
    cn_err err = taken ? nccl_await_start(nccl, job->comm, nccl->timeout_ms) : CN_EIO;

    return err ? err : nccl_await_stream(nccl, job->comm, nccl->timeout_ms);
}

// Returns the address of an element in the call's data.
static void *host_at(const struct job *job, size_t element)
{
    return (uint8_t *)job->call->data + element * job->element;
}

// Returns the address of an element in the staging memory.
static void *device_at(const struct nccl *nccl, const struct job *job, size_t element)
{
    return (void *)(uintptr_t)(nccl->staging + element * job->element);
}

// Starts a copy of count elements to element `to` of the staging memory.
static bool copy_in(struct nccl *nccl, const struct job *job, size_t to, const void *from,
                    size_t count)
{
    return !nccl->library->copy_in(nccl->staging + to * job->element, from, count * job->element,
                                   nccl->stream);
}

// Starts a copy of count elements from element `from` of the staging memory. Call it only when the
// stream is empty: see nccl_await_stream.
static bool copy_out(struct nccl *nccl, const struct job *job, void *to, size_t from, size_t count)
{
    return !nccl->library->copy_out(to, nccl->staging + from * job->element, count * job->element,
                                    nccl->stream);
}

// Reduces elements [first, first + count), which fit into the staging memory.
static cn_err reduce_range(struct nccl *nccl, const struct job *job, size_t first, size_t count)
{
    void *device = device_at(nccl, job, 0);
    cn_err err;

    if (!copy_in(nccl, job, 0, host_at(job, first), count))
        return CN_EIO;
    err = finish(nccl, job,
                 nccl_started(nccl->library->all_reduce(device, device, count, job->type, NCCL_SUM,
                                                        job->comm->handle, nccl->stream)));
    if (!err && !copy_out(nccl, job, host_at(job, first), 0, count))
        err = CN_EIO;
    return err ? err : nccl_await_stream(nccl, job->comm, nccl->timeout_ms);
}

static cn_err run_all_reduce(struct nccl *nccl, const struct job *job)
{
    size_t room = NCCL_STAGING_SIZE / job->element, left = job->call->count;
    cn_err err = CN_OK;

    while (!err && left) {
        size_t count = left < room ? left : room;

        err = reduce_range(nccl, job, job->call->count - left, count);
        left -= count;
    }
    return err;
}

// Returns the number of elements of a share that a pass handles: those from offset, at most room.
// *first is the index of the first in the call's data.
static size_t part_of_share(const struct job *job, uint32_t share, size_t offset, size_t room,
                            size_t *first)
{
    size_t count = cn_reduce_share(job->call->count, job->size, share, first);

    *first += offset;
    if (offset >= count)
        return 0;
    return count - offset < room ? count - offset : room;
}

// Returns an upper bound of the size of any share.
static size_t largest_share(const struct job *job)
{
    return job->call->count / job->size + 1;
}

// Starts the reduction of a part of each share to its owner, or its broadcast from there. The parts
// lie one after the other on the device, room elements apart.
static bool issue_shares(struct nccl *nccl, const struct job *job, size_t offset, size_t room)
{
    const struct nccl_library *library = nccl->library;
    bool good = nccl_started(library->group_start());

    for (uint32_t s = 0; s < job->size && good; s++) {
        size_t first, count = part_of_share(job, s, offset, room, &first);
        void *device = device_at(nccl, job, s * room);

        if (count && job->call->kind == CN_COLLECTIVE_REDUCE_SCATTER)
            good = nccl_started(library->reduce(device, device, count, job->type, NCCL_SUM, (int)s,
                                                job->comm->handle, nccl->stream));
        else if (count)
            good = nccl_started(library->broadcast(device, device, count, job->type, (int)s,
                                                   job->comm->handle, nccl->stream));
    }
    return nccl_started(library->group_end()) && good;
}

// Does one pass of a reduce-scatter or all-gather: at most room elements of each share, from
// offset.
static cn_err pass_shares(struct nccl *nccl, const struct job *job, size_t offset, size_t room)
{
    bool scatters = job->call->kind == CN_COLLECTIVE_REDUCE_SCATTER, good = true;
    cn_err err;

    for (uint32_t s = 0; s < job->size && good; s++) {
        size_t first, count = part_of_share(job, s, offset, room, &first);

        if (count && (scatters || s == job->place))
            good = copy_in(nccl, job, s * room, host_at(job, first), count);
    }
    if (!good)
        return CN_EIO;
    err = finish(nccl, job, issue_shares(nccl, job, offset, room));
    for (uint32_t s = 0; s < job->size && !err; s++) {
        size_t first, count = part_of_share(job, s, offset, room, &first);

        if (count && scatters == (s == job->place) &&
            !copy_out(nccl, job, host_at(job, first), s * room, count))
            err = CN_EIO;
    }
    return err ? err : nccl_await_stream(nccl, job->comm, nccl->timeout_ms);
}

static cn_err run_shares(struct nccl *nccl, const struct job *job)
{
    size_t room = NCCL_STAGING_SIZE / job->element / job->size;
    cn_err err = CN_OK;

    for (size_t offset = 0; !err && offset < largest_share(job); offset += room)
        err = pass_shares(nccl, job, offset, room);
    return err;
}

// --- narrow sums; the job is of the rounded numbers ---

// Starts the exchange of a part of each share. The device holds the parts for each place, room
// elements apart, then the parts from each place.
static bool issue_halves(struct nccl *nccl, const struct job *job, size_t offset, size_t room)
{
    const struct nccl_library *library = nccl->library;
    uint32_t size = job->size;
    size_t first, own = part_of_share(job, job->place, offset, room, &first);
    bool good = nccl_started(library->group_start());

    for (uint32_t p = 0; p < size && good; p++) {
        size_t count = part_of_share(job, p, offset, room, &first);

        if (p == job->place)
            continue;
        if (count)
            good = nccl_started(library->send(device_at(nccl, job, p * room), count, job->type,
                                              (int)p, job->comm->handle, nccl->stream));
        if (own && good)
            good =
                nccl_started(library->receive(device_at(nccl, job, (size + p) * room), own,
                                              job->type, (int)p, job->comm->handle, nccl->stream));
    }
    return nccl_started(library->group_end()) && good;
}

// Does one pass of the exchange. parts receives this place's share of the numbers of each other
// place, share elements from each.
static cn_err pass_halves(struct nccl *nccl, const struct job *job, size_t offset, size_t room,
                          uint16_t *parts, size_t share)
{
    uint32_t size = job->size, place = job->place;
    size_t first, own = part_of_share(job, place, offset, room, &first);
    bool good = true;
    cn_err err;

    for (uint32_t p = 0; p < size && good; p++) {
        size_t count = part_of_share(job, p, offset, room, &first);

        if (count && p != place)
            good = copy_in(nccl, job, p * room, host_at(job, first), count);
    }
    if (!good)
        return CN_EIO;
    err = finish(nccl, job, issue_halves(nccl, job, offset, room));
    for (uint32_t p = 0, k = 0; p < size && own && !err; p++)
        if (p != place &&
            !copy_out(nccl, job, parts + k++ * share + offset, (size + p) * room, own))
            err = CN_EIO;
    return err ? err : nccl_await_stream(nccl, job->comm, nccl->timeout_ms);
}

// Makes room for count bfloat16 numbers.
static cn_err reserve_halves(struct nccl *nccl, size_t count)
{
    uint16_t *halves;

    if (count <= nccl->half_count)
        return CN_OK;
    halves = realloc(nccl->halves, count * sizeof(*halves));
    if (!halves)
        return CN_ENOMEM;
    nccl->halves = halves;
    nccl->half_count = count;
    return CN_OK;
}

static cn_err run_narrow(struct nccl *nccl, const struct nccl_member *comm,
                         const struct cn_collective_call *call)
{
    struct cn_collective_call gather = {
        .kind = CN_COLLECTIVE_ALL_GATHER, .type = CN_BFLOAT16, .count = call->count};
    const struct job job = job_of(&gather, comm);
    size_t first, own = cn_reduce_share(call->count, comm->size, comm->place, &first);
    size_t room = NCCL_STAGING_SIZE / job.element / (2 * comm->size);
    cn_err err = reserve_halves(nccl, call->count + (comm->size - 1) * own);
    uint16_t *sums = nccl->halves, *parts = sums + call->count;
    float *data = call->data;

    assert(job.size > 1); // nccl_takes_call declines sets of one
    if (err)
        return err;
    gather.data = sums;
    cn_reduce_narrow(sums, data, call->count);
    for (size_t offset = 0; !err && offset < largest_share(&job); offset += room)
        err = pass_halves(nccl, &job, offset, room, parts, own);
    if (err)
        return err;
    cn_reduce_narrow_sum(data + first, own, parts, comm->size - 1, sums + first);
    if (call->kind == CN_COLLECTIVE_REDUCE_SCATTER) {
        cn_reduce_widen(data + first, sums + first, own);
        return CN_OK;
    }
    err = run_shares(nccl, &job);
    if (!err)
        cn_reduce_widen(data, sums, call->count);
    return err;
}

// Divides the sums of a call that averages. NCCL's own average multiplies by 1 / members before it
// adds, or divides as if unsigned.
static void average(const struct job *job)
{
    size_t first = 0, count = job->call->count;

    if (job->call->kind == CN_COLLECTIVE_ALL_GATHER)
        return;
    if (job->call->kind == CN_COLLECTIVE_REDUCE_SCATTER)
        count = cn_reduce_share(count, job->size, job->place, &first);
    cn_reduce_finish(job->call->type, job->call->how, host_at(job, first), count, job->size);
}

cn_err nccl_run_call(struct nccl *nccl, const struct nccl_member *comm,
                     const struct cn_collective_call *call)
{
    const struct job job = job_of(call, comm);
    cn_err err;

    if (call->wire)
        return run_narrow(nccl, comm, call);
    err = call->kind == CN_COLLECTIVE_ALL_REDUCE ? run_all_reduce(nccl, &job)
                                                 : run_shares(nccl, &job);
    if (!err)
        average(&job);
    return err;
}
