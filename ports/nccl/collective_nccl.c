#include "ports/nccl/collective_nccl.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ports/nccl/abort.h"
#include "runtime/base/log.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"

#define STAGING_SIZE (16u << 20) // bytes on the device that data passes through
#define POLL_US 200              // between looks at what the device does
#define CHECK_MS 5               // between looks at the members

struct nccl {
    struct cn_collective base;
    const struct nccl_library *library;
    struct cn_collective *control; // borrowed
    struct cn_view view;
    uint32_t form_ms, timeout_ms;
    uint64_t form_until_ms; // for all communicators together
    int stop_fd;
    atomic_bool canceled;
    bool dead;
    uint32_t lost;
    struct nccl_member comms[NCCL_COMMS_MAX]; // the whole group's first, then its children
    uint32_t comm_count;
    cuda_stream stream;
    cuda_event event;
    cuda_pointer staging;
};

static cn_err fail(struct nccl *nccl, cn_err err)
{
    cn_err aborted = nccl_abort(nccl->library, nccl->comms, &nccl->comm_count);

    nccl->dead = true;
    if (err == CN_EPEER)
        nccl->lost = nccl->control->ops->lost(nccl->control);
    return aborted ? aborted : err;
}

static void pause_briefly(void)
{
    usleep(POLL_US);
}

// Why a wait must end before its time, or CN_OK.
static cn_err interruption(struct nccl *nccl)
{
    struct pollfd stop = {.fd = nccl->stop_fd, .events = POLLIN};

    if (atomic_load(&nccl->canceled) || poll(&stop, 1, 0) > 0)
        return CN_ECANCELED;
    return nccl->control->ops->check(nccl->control);
}

// Waits until ready(nccl, comm) says something else than CN_EAGAIN.
static cn_err await(struct nccl *nccl, const struct nccl_member *comm, uint32_t timeout_ms,
                    cn_err (*ready)(struct nccl *nccl, const struct nccl_member *comm))
{
    uint64_t now_ms = cn_platform_now_ms();
    uint64_t until_ms = now_ms + timeout_ms, check_ms = now_ms + CHECK_MS;

    for (;;) {
        cn_err err = ready(nccl, comm);

        if (err != CN_EAGAIN)
            return err;
        now_ms = cn_platform_now_ms();
        if (now_ms >= until_ms)
            return CN_ETIMEOUT;
        if (now_ms >= check_ms) {
            err = interruption(nccl);
            if (err)
                return err;
            check_ms = now_ms + CHECK_MS;
        }
        pause_briefly();
    }
}

// A communicator says how its last asynchronous work went.
static cn_err comm_ready(struct nccl *nccl, const struct nccl_member *comm)
{
    int state = NCCL_SUCCESS;
    int result = nccl->library->comm_error(comm->handle, &state);

    if (result == NCCL_SUCCESS)
        result = state;
    if (result == NCCL_IN_PROGRESS)
        return CN_EAGAIN;
    if (result == NCCL_REMOTE_ERROR)
        return CN_EPEER;
    return result == NCCL_SUCCESS ? CN_OK : CN_EIO;
}

static cn_err device_ready(struct nccl *nccl, const struct nccl_member *comm)
{
    int result = nccl->library->event_query(nccl->event);
    cn_err err;

    if (result == CUDA_SUCCESS)
        return CN_OK;
    if (result != CUDA_NOT_READY)
        return CN_EIO;
    err = comm_ready(nccl, comm);
    return err ? err : CN_EAGAIN;
}

static bool started(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

static struct nccl_config comm_config(void)
{
    return (struct nccl_config){
        .size = sizeof(struct nccl_config),
        .magic = NCCL_MAGIC,
        .version = NCCL_CONFIG_VERSION,
        .blocking = 0,
        .cga_cluster_size = NCCL_UNSET,
        .min_ctas = NCCL_UNSET,
        .max_ctas = NCCL_UNSET,
        .split_share = NCCL_UNSET,
    };
}

// The smallest of each value over all members.
static cn_err agree(struct cn_collective *control, float *values, size_t count)
{
    return cn_all_reduce(control, CN_REDUCE_MIN, values, count);
}

static cn_err take_device(struct nccl *nccl)
{
    const struct nccl_library *library = nccl->library;

    if (!library || library->device_enter() || library->stream_create(&nccl->stream, 1) ||
        library->event_create(&nccl->event, 2) ||
        library->memory_take(&nccl->staging, STAGING_SIZE))
        return CN_ENOTSUP;
    return CN_OK;
}

// All members have the library in one version, and a device.
static cn_err agree_to_try(struct nccl *nccl, bool able)
{
    int version = 0;
    float values[3];
    cn_err err;

    if (able && nccl->library->get_version(&version))
        able = false;
    values[0] = able ? 1 : 0;
    values[1] = (float)version;
    values[2] = (float)-version;
    err = agree(nccl->control, values, 3);
    if (err)
        return err;
    if (values[0] < 1)
        return CN_ENOTSUP;
    if (values[1] != -values[2]) {
        cn_log(CN_LOG_WARN, "nccl", "the members have NCCL %d to %d: all need the same",
               (int)values[1], (int)-values[2]);
        return CN_ENOTSUP;
    }
    return CN_OK;
}

// The id is made only now, since one that nobody uses leaks a thread and a socket.
static cn_err share_id(struct nccl *nccl, struct nccl_id *id, bool *made)
{
    struct {
        uint8_t made;
        struct nccl_id id;
    } message = {0};
    cn_err err;

    if (nccl->view.rank == 0)
        message.made = nccl->library->get_unique_id(&message.id) == NCCL_SUCCESS;
    err = cn_broadcast(nccl->control, 0, &message, sizeof(message));
    *made = message.made;
    *id = message.id;
    explicit_bzero(&message, sizeof(message));
    return err;
}

static cn_err await_forming(struct nccl *nccl, const struct nccl_member *comm)
{
    uint64_t now_ms = cn_platform_now_ms();
    uint32_t left_ms = now_ms < nccl->form_until_ms ? (uint32_t)(nccl->form_until_ms - now_ms) : 0;

    return await(nccl, comm, left_ms, comm_ready);
}

static cn_err form_whole(struct nccl *nccl, const struct nccl_id *id)
{
    struct nccl_config config = comm_config();
    struct nccl_member *comm = &nccl->comms[0];

    *comm = (struct nccl_member){.size = nccl->view.size, .place = nccl->view.rank};
    if (!started(nccl->library->comm_init(&comm->handle, (int)comm->size, *id, (int)comm->place,
                                          &config)))
        return CN_EIO;
    nccl->comm_count = 1;
    return await_forming(nccl, comm);
}

static uint32_t place_in(const struct cn_set *set, uint32_t rank)
{
    uint32_t p = 0;

    while (p < set->size && set->ranks[p] != rank)
        p++;
    return p;
}

// Every member splits for every set; those outside get no communicator.
static cn_err form_set(struct nccl *nccl, const struct cn_set *set)
{
    struct nccl_config config = comm_config();
    struct nccl_member *comm = &nccl->comms[nccl->comm_count];
    uint32_t place = place_in(set, nccl->view.rank);
    bool inside = place < set->size;
    cn_err err;

    if (nccl->comm_count == NCCL_COMMS_MAX)
        return CN_ERANGE;
    *comm = (struct nccl_member){.set = set->id, .size = set->size, .place = place};
    if (!started(nccl->library->comm_split(nccl->comms[0].handle, inside ? 0 : NCCL_NO_COLOR,
                                           (int)place, &comm->handle, &config)))
        return CN_EIO;
    err = await_forming(nccl, &nccl->comms[0]);
    if (err || !inside)
        return err;
    nccl->comm_count++;
    return await_forming(nccl, comm);
}

static cn_err form(struct nccl *nccl, const struct cn_collective_config *config)
{
    struct nccl_id id;
    float formed;
    bool made;
    cn_err err = share_id(nccl, &id, &made), own;

    if (err)
        return err;
    nccl->form_until_ms = cn_platform_now_ms() + nccl->form_ms;
    own = made ? form_whole(nccl, &id) : CN_EIO;
    explicit_bzero(&id, sizeof(id));
    for (uint32_t i = 0; !own && i < config->set_count; i++)
        own = form_set(nccl, &config->sets[i]);
    if (own == CN_ECANCELED || own == CN_EPEER)
        return fail(nccl, own);
    formed = own ? 0 : 1;
    err = agree(nccl->control, &formed, 1);
    if (err)
        return fail(nccl, err);
    if (formed == 1)
        return CN_OK;
    cn_log(CN_LOG_WARN, "nccl", "the communicators did not form%s%s; this epoch goes without",
           own ? ": " : " on another member", own ? cn_err_text(own) : "");
    return fail(nccl, CN_ENOTSUP);
}

static void release(struct nccl *nccl)
{
    const struct nccl_library *library = nccl->library;

    if (library && !cn_nccl_wedged()) { // a kernel may still use them
        if (nccl->staging)
            (void)library->memory_free(nccl->staging);
        if (nccl->event)
            (void)library->event_destroy(nccl->event);
        if (nccl->stream)
            (void)library->stream_destroy(nccl->stream);
    }
    free(nccl);
}

cn_err cn_nccl_open_with(const struct nccl_library *library,
                         const struct cn_collective_config *config,
                         struct cn_collective **collective)
{
    struct nccl *nccl = calloc(1, sizeof(*nccl));
    cn_err err;

    if (!nccl)
        return CN_ENOMEM;
    assert(config->control);
    nccl->base.ops = &cn_collective_nccl;
    nccl->library = library;
    nccl->control = config->control;
    nccl->view = config->view;
    nccl->form_ms = config->open_timeout_ms;
    nccl->timeout_ms = config->progress_timeout_ms;
    nccl->stop_fd = config->cancel_fd;
    nccl->lost = UINT32_MAX;
    err = agree_to_try(nccl, !cn_nccl_wedged() && take_device(nccl) == CN_OK);
    if (err == CN_ENOTSUP && cn_nccl_wedged())
        err = CN_EWEDGED;
    if (!err)
        err = form(nccl, config);
    if (err) {
        release(nccl);
        return err;
    }
    *collective = &nccl->base;
    return CN_OK;
}

static cn_err nccl_open(const struct cn_collective_config *config,
                        struct cn_collective **collective, uint32_t *lost)
{
    const char *why;
    const struct nccl_library *library = nccl_library_load(&why);
    cn_err err = cn_nccl_open_with(library, config, collective);

    if (!library)
        cn_log(CN_LOG_INFO, "nccl", "not used: %s", why);
    *lost = err == CN_EPEER ? config->control->ops->lost(config->control) : UINT32_MAX;
    return err;
}

static void nccl_close(struct cn_collective *collective)
{
    struct nccl *nccl = (struct nccl *)collective;

    if (!nccl)
        return;
    (void)nccl_abort(nccl->library, nccl->comms,
                     &nccl->comm_count); // what went wrong is in cn_nccl_wedged
    release(nccl);
}

// A call on its way: where its elements are on the device, and what they are there.
struct job {
    const struct cn_collective_call *call;
    const struct nccl_member *comm;
    size_t element; // bytes
    int type, how;
};

static bool is_for_nccl(const struct cn_collective_call *call)
{
    bool sums = call->how == CN_REDUCE_SUM || call->how == CN_REDUCE_AVERAGE;

    return (call->kind == CN_COLLECTIVE_ALL_REDUCE || call->kind == CN_COLLECTIVE_REDUCE_SCATTER ||
            call->kind == CN_COLLECTIVE_ALL_GATHER) &&
           sums && call->count * cn_number_size(call->type) >= CN_NCCL_BYTES_MIN &&
           (!call->set || call->set->size > 1);
}

static const struct nccl_member *find_comm(const struct nccl *nccl, const struct cn_set *set)
{
    for (uint32_t i = 0; i < nccl->comm_count; i++)
        if (nccl->comms[i].set == (set ? set->id : 0))
            return &nccl->comms[i];
    return NULL;
}

static cn_err finish(struct nccl *nccl, const struct job *job)
{
    if (nccl->library->event_record(nccl->event, nccl->stream))
        return CN_EIO;
    return await(nccl, job->comm, nccl->timeout_ms, device_ready);
}

static cn_err reduce_range(struct nccl *nccl, const struct job *job, size_t first, size_t count)
{
    const struct nccl_library *library = nccl->library;
    uint8_t *host = (uint8_t *)job->call->data + first * job->element;
    void *device = (void *)(uintptr_t)nccl->staging;

    if (library->copy_in(nccl->staging, host, count * job->element, nccl->stream) ||
        !started(library->all_reduce(device, device, count, job->type, job->how, job->comm->handle,
                                     nccl->stream)) ||
        library->copy_out(host, nccl->staging, count * job->element, nccl->stream))
        return CN_EIO;
    return finish(nccl, job);
}

static cn_err run_all_reduce(struct nccl *nccl, const struct job *job)
{
    size_t room = STAGING_SIZE / job->element, left = job->call->count;
    cn_err err = CN_OK;

    while (!err && left) {
        size_t count = left < room ? left : room;

        err = reduce_range(nccl, job, job->call->count - left, count);
        left -= count;
    }
    return err;
}

// The part of share s that this pass handles, at most room elements from offset.
static size_t part_of_share(const struct job *job, uint32_t share, size_t offset, size_t room,
                            uint8_t **host)
{
    size_t first;
    size_t count = cn_reduce_share(job->call->count, job->comm->size, share, &first);

    *host = (uint8_t *)job->call->data + (first + offset) * job->element;
    if (offset >= count)
        return 0;
    return count - offset < room ? count - offset : room;
}

// One pass over a part of every share: reduced to its owner, or sent by it to all.
static cn_err pass_shares(struct nccl *nccl, const struct job *job, size_t offset, size_t room)
{
    const struct nccl_library *library = nccl->library;
    bool scatters = job->call->kind == CN_COLLECTIVE_REDUCE_SCATTER;
    bool failed = false;
    uint8_t *host;

    for (uint32_t s = 0; s < job->comm->size && !failed; s++) {
        size_t count = part_of_share(job, s, offset, room, &host);

        if (count && (scatters || s == job->comm->place))
            failed = library->copy_in(nccl->staging + s * room * job->element, host,
                                      count * job->element, nccl->stream);
    }
    if (failed || !started(library->group_start()))
        return CN_EIO;
    for (uint32_t s = 0; s < job->comm->size && !failed; s++) {
        size_t count = part_of_share(job, s, offset, room, &host);
        void *device = (void *)(uintptr_t)(nccl->staging + s * room * job->element);

        if (count && scatters)
            failed = !started(library->reduce(device, device, count, job->type, job->how, (int)s,
                                              job->comm->handle, nccl->stream));
        else if (count)
            failed = !started(library->broadcast(device, device, count, job->type, (int)s,
                                                 job->comm->handle, nccl->stream));
    }
    if (!started(library->group_end()))
        failed = true;
    for (uint32_t s = 0; s < job->comm->size && !failed; s++) {
        size_t count = part_of_share(job, s, offset, room, &host);

        if (count && scatters == (s == job->comm->place))
            failed = library->copy_out(host, nccl->staging + s * room * job->element,
                                       count * job->element, nccl->stream);
    }
    return failed ? CN_EIO : finish(nccl, job);
}

static cn_err run_shares(struct nccl *nccl, const struct job *job)
{
    size_t room = STAGING_SIZE / job->element / job->comm->size;
    size_t largest = job->call->count / job->comm->size + 1;
    cn_err err = CN_OK;

    for (size_t offset = 0; !err && offset < largest; offset += room)
        err = pass_shares(nccl, job, offset, room);
    return err;
}

// NCCL hangs when members issue different calls; the control's barrier compares them first.
static cn_err compare_calls(struct nccl *nccl, const struct cn_collective_call *call)
{
    const struct cn_collective_call barrier = {
        .kind = CN_COLLECTIVE_BARRIER,
        .how = call->how,
        .type = call->type,
        .set = call->set,
        .count = call->count,
        .fingerprint = call->fingerprint * 31 + (uint32_t)call->kind,
    };

    return nccl->control->ops->run(nccl->control, &barrier);
}

static cn_err nccl_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    static const int types[] = {[CN_FLOAT32] = NCCL_FLOAT32,
                                [CN_BFLOAT16] = NCCL_BFLOAT16,
                                [CN_FLOAT16] = NCCL_FLOAT16,
                                [CN_INT64] = NCCL_INT64};
    struct nccl *nccl = (struct nccl *)collective;
    struct job job = {.call = call,
                      .comm = find_comm(nccl, call->set),
                      .element = cn_number_size(call->type),
                      .type = types[call->type],
                      .how = call->how == CN_REDUCE_SUM ? NCCL_SUM : NCCL_AVERAGE};
    cn_err err;

    if (nccl->dead)
        return cn_nccl_wedged() ? CN_EWEDGED : CN_EPEER;
    if (!is_for_nccl(call) || !job.comm)
        return nccl->control->ops->run(nccl->control, call);
    err = compare_calls(nccl, call);
    if (!err && nccl->library->device_enter())
        err = CN_EIO;
    if (!err)
        err = call->kind == CN_COLLECTIVE_ALL_REDUCE ? run_all_reduce(nccl, &job)
                                                     : run_shares(nccl, &job);
    return err ? fail(nccl, err) : CN_OK;
}

static void nccl_cancel(struct cn_collective *collective)
{
    struct nccl *nccl = (struct nccl *)collective;

    atomic_store(&nccl->canceled, true);
    nccl->control->ops->cancel(nccl->control);
}

static cn_err nccl_check(struct cn_collective *collective)
{
    struct nccl *nccl = (struct nccl *)collective;

    return nccl->dead ? CN_EPEER : nccl->control->ops->check(nccl->control);
}

static uint32_t nccl_lost(const struct cn_collective *collective)
{
    const struct nccl *nccl = (const struct nccl *)collective;

    return nccl->lost != UINT32_MAX ? nccl->lost : nccl->control->ops->lost(nccl->control);
}

const struct cn_collective_ops cn_collective_nccl = {
    .name = "nccl",
    .open = nccl_open,
    .close = nccl_close,
    .run = nccl_run,
    .cancel = nccl_cancel,
    .check = nccl_check,
    .lost = nccl_lost,
};
