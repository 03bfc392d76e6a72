#include "ports/nccl/collective_nccl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ports/nccl/failures.h"
#include "ports/nccl/nccl_private.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

// Returns whether a member has gone. NCCL may report that as an error of its own, a moment before
// the control's connections close. So this waits up to 100 ms.
static bool member_is_lost(const struct nccl *nccl)
{
    const struct timespec moment = {.tv_nsec = 10000000};

    for (int i = 0; i < 10; i++) {
        if (nccl->control->ops->check(nccl->control) == CN_EPEER)
            return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

// Gives all that the epoch holds of NCCL and of the device to a thread that ends it.
static cn_err end(struct nccl *nccl, bool healthy)
{
    struct nccl_holdings held = {
        .library = nccl->library,
        .device = nccl->device,
        .comm_count = nccl->comm_count,
        .stream = nccl->stream,
        .event = nccl->event,
        .staging = nccl->staging,
    };

    if (!nccl->stream && !nccl->event && !nccl->staging && !nccl->comm_count)
        return CN_OK;
    memcpy(held.comms, nccl->comms, nccl->comm_count * sizeof(*nccl->comms));
    nccl->comm_count = 0;
    nccl->stream = NULL;
    nccl->event = NULL;
    nccl->staging = 0;
    return nccl_end(&held, healthy);
}

// Ends the collective and returns the error to report: CN_EWEDGED if the abort cannot begin,
// CN_EPEER if a lost member explains err.
static cn_err fail(struct nccl *nccl, cn_err err)
{
    cn_err aborted = end(nccl, false);

    nccl->dead = true;
    if (err == CN_EIO && member_is_lost(nccl))
        err = CN_EPEER;
    if (err == CN_EIO)
        nccl_note_failure();
    if (err == CN_EPEER)
        nccl->lost = nccl->control->ops->lost(nccl->control);
    return aborted ? aborted : err;
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

#define SAID_MAX 1000000 // more was said by no program of ours

// Exchanges a small whole number with all members; said[r] is the number of rank r, or 0 if that is
// none.
static cn_err hear_all(struct nccl *nccl, int own, int said[CN_GROUP_MAX])
{
    float values[CN_GROUP_MAX] = {0};
    cn_err err;

    values[nccl->view.rank] = (float)own;
    err = cn_all_reduce(nccl->control, CN_REDUCE_SUM, values, nccl->view.size);
    for (uint32_t r = 0; r < nccl->view.size; r++)
        said[r] = values[r] >= -SAID_MAX && values[r] <= SAID_MAX ? (int)values[r] : 0;
    return err;
}

static const char *name_of(const struct nccl *nccl, uint32_t rank)
{
    return nccl->members[nccl->view.ranks[rank]].name;
}

// Takes the stream, the event and the staging memory on the device. end returns them, also after an
// error.
static cn_err take_device(struct nccl *nccl)
{
    const struct nccl_library *library = nccl->library;

    if (!library || library->device_enter(nccl->device) ||
        library->stream_create(&nccl->stream, 1) || library->event_create(&nccl->event, 2) ||
        library->memory_take(&nccl->staging, NCCL_STAGING_SIZE))
        return CN_ENOTSUP;
    return CN_OK;
}

// Agrees with all members that each has a device that works and the same version of the library.
// CN_ENOTSUP if one has not.
static cn_err agree_to_try(struct nccl *nccl, bool able)
{
    int version = 0, versions[CN_GROUP_MAX];
    cn_err err;

    if (!able || nccl->library->get_version(&version))
        version = 0;
    err = hear_all(nccl, version, versions);
    for (uint32_t r = 0; !err && r < nccl->view.size; r++) {
        if (!versions[r] && r != nccl->view.rank)
            cn_log(CN_LOG_INFO, "nccl", "not used: %s has no library or device that works",
                   name_of(nccl, r));
        else if (versions[r] && versions[0] && versions[r] != versions[0])
            cn_log(CN_LOG_WARN, "nccl", "not used: %s has version %d, %s %d, and all need the same",
                   name_of(nccl, r), versions[r], name_of(nccl, 0), versions[0]);
        if (!versions[r] || versions[r] != versions[0])
            return CN_ENOTSUP;
    }
    return err;
}

// Makes the id of the communicator on rank 0 and sends it to all. It is made only after the first
// agreement, since an id that is not used leaks a thread and a socket. *made is false if NCCL
// failed.
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

// Returns the time until form_until_ms.
static uint32_t left_to_form(const struct nccl *nccl)
{
    uint64_t now_ms = cn_platform_now_ms();

    return now_ms < nccl->form_until_ms ? (uint32_t)(nccl->form_until_ms - now_ms) : 0;
}

// Waits until the communicator is ready, until form_until_ms at most.
static cn_err await_forming(struct nccl *nccl, const struct nccl_member *comm)
{
    return nccl_await_start(nccl, comm, left_to_form(nccl));
}

// Sums one number, whatever the staging memory holds. NCCL 2.22 and later connects the members and
// loads its kernels with the first call of a communicator; a member that cannot do that is then
// found while the group forms, and the first sum of a step does not wait for it.
static cn_err warm_up(struct nccl *nccl, const struct nccl_member *comm)
{
    void *number = (void *)(uintptr_t)nccl->staging;
    cn_err err;

    if (!nccl_started(nccl->library->all_reduce(number, number, 1, NCCL_FLOAT32, NCCL_SUM,
                                                comm->handle, nccl->stream)))
        return CN_EIO;
    err = await_forming(nccl, comm);
    return err ? err : nccl_await_stream(nccl, comm, left_to_form(nccl));
}

// Forms the communicator of the whole group.
static cn_err form_whole(struct nccl *nccl, const struct nccl_id *id)
{
    struct nccl_config config = comm_config();
    struct nccl_member *comm = &nccl->comms[0];
    cn_err err;

    *comm = (struct nccl_member){.size = nccl->view.size, .place = nccl->view.rank};
    if (!nccl_started(nccl->library->comm_init(&comm->handle, (int)comm->size, *id,
                                               (int)comm->place, &config)))
        return CN_EIO;
    nccl->comm_count = 1;
    err = await_forming(nccl, comm);
    return err ? err : warm_up(nccl, comm);
}

static uint32_t place_in(const struct cn_set *set, uint32_t rank)
{
    uint32_t p = 0;

    while (p < set->size && set->ranks[p] != rank)
        p++;
    return p;
}

// Splits off the communicator of a set. NCCL requires every member to call split for every set;
// members outside of it get no communicator.
static cn_err form_set(struct nccl *nccl, const struct cn_set *set)
{
    struct nccl_config config = comm_config();
    struct nccl_member *comm = &nccl->comms[nccl->comm_count];
    uint32_t place = place_in(set, nccl->view.rank);
    bool inside = place < set->size;
    cn_err err;

    *comm = (struct nccl_member){.set = set->id, .size = set->size, .place = place};
    if (!nccl_started(nccl->library->comm_split(nccl->comms[0].handle, inside ? 0 : NCCL_NO_COLOR,
                                                (int)place, &comm->handle, &config)))
        return CN_EIO;
    err = await_forming(nccl, &nccl->comms[0]);
    if (err || !inside)
        return err;
    nccl->comm_count++;
    err = await_forming(nccl, comm);
    return err ? err : warm_up(nccl, comm);
}

// Agrees with all members whether the communicators formed; own is the result on this member. If
// one of them failed, this releases all communicators and returns CN_ENOTSUP.
static cn_err agree_on_forming(struct nccl *nccl, cn_err own)
{
    int failed[CN_GROUP_MAX];
    uint32_t first = 0;
    cn_err err;

    if (own == CN_ECANCELED || own == CN_EPEER)
        return fail(nccl, own);
    err = hear_all(nccl, own != CN_OK, failed);
    if (err)
        return fail(nccl, err);
    while (first < nccl->view.size && !failed[first])
        first++;
    if (first == nccl->view.size)
        return CN_OK;
    cn_log(CN_LOG_WARN, "nccl", "the communicators did not form on %s%s%s; this epoch goes without",
           name_of(nccl, own ? nccl->view.rank : first), own ? ": " : "",
           own ? cn_err_text(own) : "");
    err = end(nccl, false);
    return err ? err : CN_ENOTSUP;
}

static cn_err form(struct nccl *nccl)
{
    struct nccl_id id;
    bool made;
    cn_err err = share_id(nccl, &id, &made);

    if (err)
        return err;
    nccl->form_until_ms = cn_platform_now_ms() + nccl->form_ms;
    err = made ? form_whole(nccl, &id) : CN_EIO;
    explicit_bzero(&id, sizeof(id));
    return agree_on_forming(nccl, err);
}

static void release(struct nccl *nccl, bool healthy)
{
    (void)end(nccl, healthy); // cn_nccl_wedged tells if this fails
    free(nccl->halves);
    free(nccl);
}

// Returns whether this member may use NCCL in this epoch: its communicators of the epoch before
// have ended, for which it waits, and nothing is wrong with the library.
static bool can_try(const struct nccl *nccl)
{
    // The others wait over the control, which must not take this member for one that hangs.
    uint32_t limit_ms = nccl->timeout_ms / 2;

    limit_ms = limit_ms < nccl->form_ms ? limit_ms : nccl->form_ms;
    if (!nccl->library || nccl_is_given_up())
        return false;
    if (!nccl_await_ends(limit_ms))
        cn_log(CN_LOG_WARN, "nccl",
               "not used: the communicators of the epoch before still end after %u ms", limit_ms);
    else if (!cn_nccl_wedged())
        return true;
    return false;
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
    nccl->members = config->members;
    nccl->view = config->view;
    nccl->device = config->device;
    nccl->form_ms = config->open_timeout_ms;
    nccl->timeout_ms = config->progress_timeout_ms;
    nccl->stop_fd = config->cancel_fd;
    nccl->lost = UINT32_MAX;
    err = agree_to_try(nccl, can_try(nccl) && take_device(nccl) == CN_OK);
    if (err == CN_ENOTSUP && cn_nccl_wedged())
        err = CN_EWEDGED;
    if (!err)
        err = form(nccl);
    if (err) {
        release(nccl, false);
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
    // Only communicators that all members end now can be finalized. The control is not asked: the
    // others may have closed theirs already.
    release(nccl, !nccl->dead && !nccl->troubled && !atomic_load(&nccl->canceled));
}

// Returns the communicator of a set, or NULL. A set of all members uses the whole group's.
static const struct nccl_member *find_comm(const struct nccl *nccl, const struct cn_set *set)
{
    uint32_t id = set && set->size < nccl->view.size ? set->id : 0;

    for (uint32_t i = 0; i < nccl->comm_count; i++)
        if (nccl->comms[i].set == id)
            return &nccl->comms[i];
    return NULL;
}

static bool is_known(const struct nccl *nccl, uint32_t set)
{
    for (uint32_t i = 0; i < nccl->known_count; i++)
        if (nccl->known[i] == set)
            return true;
    return false;
}

// Skips sets that are known already. All members know the same sets, so all of them form the same
// communicators.
static cn_err nccl_prepare(struct cn_collective *collective, const struct cn_set *sets,
                           uint32_t count)
{
    struct nccl *nccl = (struct nccl *)collective;
    uint32_t before = nccl->known_count;
    cn_err err = CN_OK;

    if (nccl->dead)
        return cn_nccl_wedged() ? CN_EWEDGED : CN_EPEER;
    if (!nccl->comm_count)
        return CN_OK;
    if (nccl->library->device_enter(nccl->device))
        err = CN_EIO;
    nccl->form_until_ms = cn_platform_now_ms() + nccl->form_ms;
    for (uint32_t i = 0; i < count; i++) {
        if (sets[i].size < 2 || sets[i].size >= nccl->view.size || is_known(nccl, sets[i].id) ||
            nccl->known_count == NCCL_COMMS_MAX - 1)
            continue;
        nccl->known[nccl->known_count++] = sets[i].id;
        err = err ? err : form_set(nccl, &sets[i]);
    }
    if (nccl->known_count == before)
        return err ? fail(nccl, err) : CN_OK;
    err = agree_on_forming(nccl, err);
    if (err != CN_ENOTSUP)
        return err;
    nccl->base.gave_up = "the communicators of its sets did not form";
    return CN_OK;
}

// Compares the call with those of the other members, by a barrier of the control. NCCL itself would
// hang when members issue different calls.
static cn_err compare_calls(struct nccl *nccl, const struct cn_collective_call *call)
{
    const struct cn_collective_call barrier = {
        .kind = CN_COLLECTIVE_BARRIER,
        .how = call->how,
        .type = call->type,
        .wire = call->wire,
        .set = call->set,
        .count = call->count,
        .fingerprint = call->fingerprint * 31 + (uint32_t)call->kind,
    };

    return nccl->control->ops->run(nccl->control, &barrier);
}

static cn_err nccl_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct nccl *nccl = (struct nccl *)collective;
    const struct nccl_member *comm = find_comm(nccl, call->set);
    cn_err err;

    if (nccl->dead)
        return cn_nccl_wedged() ? CN_EWEDGED : CN_EPEER;
    if (!nccl_takes_call(call) || !comm) {
        err = nccl->control->ops->run(nccl->control, call);
        nccl->troubled = nccl->troubled || err;
        return err;
    }
    err = compare_calls(nccl, call);
    if (!err && nccl->library->device_enter(nccl->device))
        err = CN_EIO;
    if (!err)
        err = nccl_run_call(nccl, comm, call);
    return err ? fail(nccl, err) : CN_OK;
}

static void nccl_cancel(struct cn_collective *collective, bool gives_up)
{
    struct nccl *nccl = (struct nccl *)collective;

    atomic_store(&nccl->canceled, true);
    nccl->control->ops->cancel(nccl->control, gives_up);
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
    .prepare = nccl_prepare,
    .run = nccl_run,
    .cancel = nccl_cancel,
    .check = nccl_check,
    .lost = nccl_lost,
};
