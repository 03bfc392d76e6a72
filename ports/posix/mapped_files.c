#include "ports/posix/mapped_files.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define FAULT_TEXT 240 // bytes, with the terminating 0
#define LOOK_MS 50     // between two looks of a thread that waits
#define TICKS_MAX 4    // waits for a file that is written to all the time

// The handler walks the list without the lock. An entry therefore stays in the list for good: one
// whose file is no longer mapped has the base 0 and serves the next file.
struct mapped_file {
    _Atomic(uintptr_t) base; // first byte; 0: not in use
    size_t size;
    char *path; // owned
    struct stat status;
    struct mapped_file *next; // does not change once the entry is in the list
};

static _Atomic(struct mapped_file *) first_file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before; // what SIGBUS did without the handler

// A file put in the place of another one leaves the mapped file as it is.
static bool has_changed(const struct mapped_file *file)
{
    struct stat now;

    return !stat(file->path, &now) && now.st_dev == file->status.st_dev &&
           now.st_ino == file->status.st_ino &&
           (now.st_size != file->status.st_size ||
            now.st_mtim.tv_sec != file->status.st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != file->status.st_mtim.tv_nsec);
}

static struct mapped_file *find(uintptr_t address)
{
    struct mapped_file *file = atomic_load(&first_file);

    for (; file; file = file->next) {
        uintptr_t base = atomic_load(&file->base);

        // The last page of a mapping is whole, whatever the size of the file.
        if (base && address >= base && address - base < file->size)
            return file;
    }
    return NULL;
}

// A thread that met a fault waits where a program wants that; owner is the thread that tells of it.
static atomic_bool holds, held;
static pthread_t owner;
static char fault_text[FAULT_TEXT];
static _Atomic(const char *) fault;

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; // nowhere is left to say so
}

// Appends to fault_text, and cuts off what does not fit.
static void append(const char *text)
{
    size_t length = strlen(fault_text);

    for (size_t i = 0; text[i] && length < sizeof(fault_text) - 1; i++)
        fault_text[length++] = text[i];
}

// Notes the fault and waits until no program wants that any more.
static void wait_held(const char *path, const char *what)
{
    if (!atomic_exchange(&held, true)) {
        append(path);
        append(what);
        atomic_store(&fault, fault_text);
    }
    while (atomic_load(&holds))
        (void)poll(NULL, 0, LOOK_MS);
}

// Calls only functions that are async-signal-safe.
static void on_fault(int number, siginfo_t *info, void *context)
{
    const struct mapped_file *file = find((uintptr_t)info->si_addr);
    const char *what;

    (void)context;
    if (!file) { // the access is repeated and ends the process
        sigaction(number, &before, NULL);
        return;
    }
    what = has_changed(file) ? " changed while it was used; write a new file and rename it instead"
                             : " cannot be read any more: it was cut off, or its disk failed";
    say("error: ");
    say(file->path);
    say(what);
    say("\n");
    if (atomic_load(&holds) && !pthread_equal(pthread_self(), owner))
        wait_held(file->path, what);
    _exit(1);
}

static void catch_faults(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before); // fails for no other reason than a wrong argument
}

// An entry that is not in use, or a new one; NULL without memory. The lock is held.
static struct mapped_file *take_entry(void)
{
    struct mapped_file *file = atomic_load(&first_file);

    while (file && atomic_load(&file->base))
        file = file->next;
    if (file)
        return file;
    file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    file->next = atomic_load(&first_file);
    atomic_store(&first_file, file);
    return file;
}

// Returns how long the clock that stamps files still shows the time at which the file was written,
// in nanoseconds. 0 for an earlier time, and for one ahead by more than a tick: another clock's.
static long tick_left(const struct stat *status)
{
    struct timespec now, tick;
    int64_t ahead;

    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) || clock_getres(CLOCK_REALTIME_COARSE, &tick) ||
        tick.tv_sec || status->st_mtim.tv_sec < now.tv_sec ||
        status->st_mtim.tv_sec > now.tv_sec + 1)
        return 0;
    ahead = (int64_t)(status->st_mtim.tv_sec - now.tv_sec) * 1000000000 + status->st_mtim.tv_nsec -
            now.tv_nsec;
    return ahead >= 0 && ahead <= tick.tv_nsec ? tick.tv_nsec : 0;
}

cn_err cn_mapped_files_status(int descriptor, struct stat *status)
{
    struct timespec wait = {0};

    for (int i = 0; i <= TICKS_MAX; i++) {
        if (fstat(descriptor, status))
            return cn_err_from_errno(errno);
        wait.tv_nsec = tick_left(status);
        if (!wait.tv_nsec)
            break;
        (void)nanosleep(&wait, NULL); // a signal only makes the next look earlier
    }
    return CN_OK;
}

cn_err cn_mapped_files_add(const void *data, size_t size, const char *path,
                           const struct stat *status)
{
    char *copy = strdup(path);
    struct mapped_file *file;

    if (!copy)
        return CN_ENOMEM;
    pthread_once(&once, catch_faults);
    pthread_mutex_lock(&lock);
    file = take_entry();
    if (file) {
        free(file->path);
        file->path = copy;
        file->size = size;
        file->status = *status;
        atomic_store(&file->base, (uintptr_t)data);
    }
    pthread_mutex_unlock(&lock);
    if (file)
        return CN_OK;
    free(copy);
    return CN_ENOMEM;
}

void cn_mapped_files_remove(const void *data)
{
    struct mapped_file *file;

    pthread_mutex_lock(&lock);
    for (file = atomic_load(&first_file); file; file = file->next)
        if (atomic_load(&file->base) == (uintptr_t)data)
            atomic_store(&file->base, 0);
    pthread_mutex_unlock(&lock);
}

bool cn_platform_mapping_changed(const struct cn_mapping *mapping, const char **path)
{
    const struct mapped_file *file;
    bool changed;

    if (!mapping->data)
        return false;
    pthread_mutex_lock(&lock);
    file = find((uintptr_t)mapping->data);
    changed = file && has_changed(file);
    if (changed)
        *path = file->path;
    pthread_mutex_unlock(&lock);
    return changed;
}

void cn_platform_hold_faults(bool hold)
{
    owner = pthread_self();
    atomic_store(&holds, hold);
}

const char *cn_platform_fault(void)
{
    return atomic_load(&fault);
}
