#include "ports/nccl/abort.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ports/nccl/collective_nccl.h"
#include "runtime/base/deadline.h"
#include "runtime/base/log.h"

#define ABORT_MS 1000 // limit for an abort to end

static atomic_bool wedged;

bool cn_nccl_wedged(void)
{
    return atomic_load(&wedged);
}

// One abort of all communicators. It may hang, so it has a thread of its own, which owns this
// struct if it outlives the caller.
struct abortion {
    const struct nccl_library *library;
    uint32_t device;
    struct nccl_member comms[NCCL_COMMS_MAX];
    uint32_t count;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool done;
};

// Aborts all communicators inside one NCCL group, because several communicators of a process may
// wait for each other.
static void *abort_main(void *context)
{
    struct abortion *abortion = context;

    (void)abortion->library->device_enter(abortion->device);
    (void)abortion->library->group_start();
    // Children first: they are not aborted with their parent.
    for (uint32_t i = abortion->count; i-- > 0;)
        (void)abortion->library->comm_abort(abortion->comms[i].handle);
    (void)abortion->library->group_end();
    pthread_mutex_lock(&abortion->mutex);
    abortion->done = true;
    pthread_cond_signal(&abortion->ended);
    pthread_mutex_unlock(&abortion->mutex);
    return NULL;
}

static void init_abortion(struct abortion *abortion)
{
    pthread_mutex_init(&abortion->mutex, NULL);
    cn_deadline_init_condition(&abortion->ended);
}

// Waits for the abort to end and returns whether it did within ABORT_MS.
static bool wait_for_abort(struct abortion *abortion)
{
    struct timespec until = cn_deadline_after(ABORT_MS);
    bool done;

    pthread_mutex_lock(&abortion->mutex);
    while (!abortion->done)
        if (pthread_cond_timedwait(&abortion->ended, &abortion->mutex, &until))
            break;
    done = abortion->done;
    pthread_mutex_unlock(&abortion->mutex);
    return done;
}

// Notes that NCCL is unusable for the rest of the process.
static cn_err wedge(void)
{
    atomic_store(&wedged, true);
    cn_log(CN_LOG_ERROR, "nccl", "an abort did not end within %d ms: the process must be restarted",
           ABORT_MS);
    return CN_EWEDGED;
}

cn_err nccl_abort(const struct nccl_library *library, uint32_t device,
                  const struct nccl_member *comms, uint32_t *count)
{
    struct abortion *abortion;
    pthread_t thread;

    if (!*count)
        return CN_OK;
    abortion = calloc(1, sizeof(*abortion));
    if (!abortion)
        return wedge();
    abortion->library = library;
    abortion->device = device;
    memcpy(abortion->comms, comms, *count * sizeof(*comms));
    abortion->count = *count;
    *count = 0;
    init_abortion(abortion);
    if (pthread_create(&thread, NULL, abort_main, abortion)) {
        free(abortion);
        return wedge();
    }
    if (!wait_for_abort(abortion)) {
        pthread_detach(thread); // it still uses abortion
        return wedge();
    }
    pthread_join(thread, NULL);
    pthread_cond_destroy(&abortion->ended);
    pthread_mutex_destroy(&abortion->mutex);
    free(abortion);
    return CN_OK;
}
