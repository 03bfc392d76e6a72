// watch.c - waits that end when a member is gone, NCCL fails or nothing moves.
#include <poll.h>
#include <unistd.h>

#include "ports/nccl/nccl_private.h"
#include "runtime/port/platform.h"

#define POLL_US 200 // pause between two queries of the device or communicator
#define CHECK_MS 5  // time between two checks of the members

bool nccl_started(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

static void pause_briefly(void)
{
    usleep(POLL_US);
}

// Returns why a wait must end before its time, or CN_OK.
static cn_err interruption(struct nccl *nccl)
{
    struct pollfd stop = {.fd = nccl->stop_fd, .events = POLLIN};

    if (atomic_load(&nccl->canceled) || poll(&stop, 1, 0) > 0)
        return CN_ECANCELED;
    return nccl->control->ops->check(nccl->control);
}

// Waits until ready(nccl, comm) returns anything but CN_EAGAIN.
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

// Returns how the last asynchronous work of the communicator went; CN_EAGAIN while it runs.
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

// Returns CN_EAGAIN until the stream has reached the event.
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

cn_err nccl_await_start(struct nccl *nccl, const struct nccl_member *comm, uint32_t timeout_ms)
{
    return await(nccl, comm, timeout_ms, comm_ready);
}

cn_err nccl_await_stream(struct nccl *nccl, const struct nccl_member *comm, uint32_t timeout_ms)
{
    if (nccl->library->event_record(nccl->event, nccl->stream))
        return CN_EIO;
    return await(nccl, comm, timeout_ms, device_ready);
}
