#include "ports/nccl/abort.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "ports/nccl/collective_nccl.h"
#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define FINALIZE_MS 2000 // limit for healthy communicators to finish; then they are aborted
#define POLL_US 1000     // pause between two queries of a communicator

// The end of an epoch's communicators, which runs in a thread of its own. The thread owns this
// struct.
struct ending {
    struct nccl_holdings holdings;
    bool healthy;
    uint64_t begun_ms, until_ms; // after until_ms the process is wedged
    struct ending *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;     // an end has returned
static struct ending *under_way; // all ends that have not returned
static bool wedged;

// Aborts all communicators, children first: they do not end with their parent.
static void abort_all(const struct nccl_holdings *held)
{
    // Inside one NCCL group, because several communicators of a process may wait for each other.
    (void)held->library->group_start();
    for (uint32_t i = held->comm_count; i-- > 0;)
        (void)held->library->comm_abort(held->comms[i].handle);
    (void)held->library->group_end();
}

// Waits until a communicator has finished. Returns whether it did without an error.
static bool await_finalized(const struct nccl_holdings *held, nccl_comm comm, uint64_t until_ms)
{
    int state = NCCL_IN_PROGRESS;

    while (held->library->comm_error(comm, &state) == NCCL_SUCCESS && state == NCCL_IN_PROGRESS) {
        if (cn_platform_now_ms() >= until_ms)
            return false;
        usleep(POLL_US);
    }
    return state == NCCL_SUCCESS;
}

// Finalizes all communicators and destroys them. On false all of them are left to be aborted.
static bool finalize_all(const struct nccl_holdings *held)
{
    uint64_t until_ms = cn_platform_now_ms() + FINALIZE_MS;

    for (uint32_t i = held->comm_count; i-- > 0;) {
        int result = held->library->comm_finalize(held->comms[i].handle);

        if ((result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) ||
            !await_finalized(held, held->comms[i].handle, until_ms))
            return false;
    }
    for (uint32_t i = held->comm_count; i-- > 0;)
        (void)held->library->comm_destroy(held->comms[i].handle);
    return true;
}

static void free_device(const struct nccl_holdings *held)
{
    const struct nccl_library *library = held->library;

    if (held->staging)
        (void)library->memory_free(held->staging);
    if (held->event)
        (void)library->event_destroy(held->event);
    if (held->stream)
        (void)library->stream_destroy(held->stream);
}

static void remove_ending(struct ending *ending)
{
    struct ending **at = &under_way;

    pthread_mutex_lock(&mutex);
    while (*at != ending)
        at = &(*at)->next;
    *at = ending->next;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mutex);
    free(ending);
}

static void *end_main(void *context)
{
    struct ending *ending = context;
    const struct nccl_holdings *held = &ending->holdings;
    bool entered = !held->library->device_enter(held->device), finalized = false;

    if (held->comm_count) {
        finalized = ending->healthy && finalize_all(held);
        if (!finalized)
            abort_all(held);
        cn_log(CN_LOG_DEBUG, "nccl", "%u communicators %s in %" PRIu64 " ms", held->comm_count,
               finalized ? "were finalized" : "were aborted",
               cn_platform_now_ms() - ending->begun_ms);
    }
    if (entered)
        free_device(held);
    remove_ending(ending);
    return NULL;
}

// Returns whether some end is past its limit, and notes that. The mutex is held.
static bool note_overdue(void)
{
    uint64_t now_ms = cn_platform_now_ms();

    for (struct ending *ending = under_way; ending && !wedged; ending = ending->next) {
        if (now_ms < ending->until_ms)
            continue;
        wedged = true;
        cn_log(CN_LOG_ERROR, "nccl",
               "an abort did not end within %u ms: the process must be restarted",
               ending->holdings.library->abort_ms);
    }
    return wedged;
}

bool cn_nccl_wedged(void)
{
    bool is;

    pthread_mutex_lock(&mutex);
    is = note_overdue();
    pthread_mutex_unlock(&mutex);
    return is;
}

bool nccl_await_ends(uint32_t timeout_ms)
{
    struct timespec until = cn_deadline_after(timeout_ms);
    bool none;

    pthread_mutex_lock(&mutex);
    while (under_way && !pthread_cond_timedwait(&ended, &mutex, &until))
        ;
    none = !under_way;
    pthread_mutex_unlock(&mutex);
    return none;
}

// NCCL must not be unloaded below a thread that is in it.
static void await_ends_at_exit(void)
{
    uint64_t now_ms = cn_platform_now_ms(), until_ms = now_ms;

    pthread_mutex_lock(&mutex);
    for (const struct ending *ending = under_way; ending; ending = ending->next)
        until_ms = ending->until_ms > until_ms ? ending->until_ms : until_ms;
    pthread_mutex_unlock(&mutex);
    (void)nccl_await_ends((uint32_t)(until_ms - now_ms));
}

static void prepare(void)
{
    cn_deadline_init_condition(&ended);
    (void)atexit(await_ends_at_exit); // if it cannot be registered, exit does not wait
}

// Notes that NCCL is unusable for the rest of the process.
static cn_err wedge(struct ending *ending)
{
    pthread_mutex_lock(&mutex);
    wedged = true;
    pthread_mutex_unlock(&mutex);
    if (ending)
        remove_ending(ending);
    cn_log(CN_LOG_ERROR, "nccl", "an abort could not begin: the process must be restarted");
    return CN_EWEDGED;
}

cn_err nccl_end(const struct nccl_holdings *holdings, bool healthy)
{
    struct ending *ending = calloc(1, sizeof(*ending));
    pthread_t thread;

    pthread_once(&once, prepare);
    if (!ending)
        return wedge(NULL);
    ending->holdings = *holdings;
    ending->healthy = healthy;
    ending->begun_ms = cn_platform_now_ms();
    ending->until_ms =
        ending->begun_ms + (healthy ? FINALIZE_MS : 0) + (uint64_t)holdings->library->abort_ms;
    pthread_mutex_lock(&mutex);
    ending->next = under_way;
    under_way = ending;
    pthread_mutex_unlock(&mutex);
    if (pthread_create(&thread, NULL, end_main, ending))
        return wedge(ending);
    pthread_detach(thread);
    return CN_OK;
}
