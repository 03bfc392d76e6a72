// The memory of the driver's double. Each of several threads may have a GPU of its own.
#include "tests/support/cuda_host_memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ports/cuda/cuda_library.h"
#include "tests/support/cuda_host.h"

#define ALLOCATIONS 4096
#define ACCESSES 256 // number of the newest accesses that are remembered

enum kind { NONE, DEVICE, PINNED, MANAGED };

static struct allocation {
    char *memory;
    size_t size;
    enum kind kind;
} allocations[ALLOCATIONS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void stop(const char *why, const void *at, size_t size)
{
    fprintf(stderr, "cuda_host: %s: %zu bytes at %p\n", why, size, at);
    abort();
}

// Returns the block that holds these bytes; NULL if the driver did not allocate them.
static struct allocation *find(const void *at, size_t size)
{
    const char *first = at;

    size = size ? size : 1; // the end of a block may be the beginning of the next
    for (size_t i = 0; i < ALLOCATIONS; i++) {
        struct allocation *a = &allocations[i];

        if (a->kind != NONE && first >= a->memory && size <= a->size &&
            first <= a->memory + a->size - size)
            return a;
    }
    return NULL;
}

static enum kind kind_of(const void *at, size_t size)
{
    const struct allocation *found;
    enum kind kind;

    pthread_mutex_lock(&lock);
    found = find(at, size);
    kind = found ? found->kind : NONE;
    pthread_mutex_unlock(&lock);
    return kind;
}

static struct allocation *free_place(void)
{
    for (size_t i = 0; i < ALLOCATIONS; i++)
        if (allocations[i].kind == NONE)
            return &allocations[i];
    return NULL;
}

// Allocates managed memory in pages of its own, so that the guard can protect them.
static void *take(size_t size, enum kind kind)
{
    size_t room = (size + 255) / 256 * 256;
    struct allocation *place;
    void *memory = NULL;

    if (kind == MANAGED && size)
        memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (size)
        memory = aligned_alloc(256, room);
    if (!memory || memory == MAP_FAILED)
        return NULL;
    memset(memory, 0xcd, size); // memory is not zero unless a caller clears it
    pthread_mutex_lock(&lock);
    place = free_place();
    if (!place)
        stop("too many allocations", memory, size);
    *place = (struct allocation){memory, size, kind};
    cuda_host_counts.allocations++;
    pthread_mutex_unlock(&lock);
    return memory;
}

// The newest accesses of all streams.
static struct access {
    const char *at;
    size_t size;
    uint64_t when;
    uint32_t stream;
    bool write;
} accesses[ACCESSES];

static uint64_t access_count; // also the time

// Forgets the accesses to memory that is freed: they do not concern its next owner.
static void forget_accesses(const char *memory, size_t size)
{
    for (size_t i = 0; i < ACCESSES; i++)
        if (accesses[i].at >= memory && accesses[i].at < memory + size)
            accesses[i] = (struct access){0};
}

static void give(void *memory, bool pinned)
{
    struct allocation *found;

    pthread_mutex_lock(&lock);
    found = find(memory, 0);
    if (!found || found->memory != memory || (found->kind == PINNED) != pinned)
        stop("memory that is not the driver's is given back", memory, 0);
    forget_accesses(found->memory, found->size);
    if (found->kind == MANAGED)
        munmap(memory, (found->size + 255) / 256 * 256);
    else
        free(memory);
    *found = (struct allocation){0};
    cuda_host_counts.allocations--;
    pthread_mutex_unlock(&lock);
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t size)
{
    if (cuda_host_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (CUdeviceptr)(uintptr_t)take(size, DEVICE);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocManaged(CUdeviceptr *memory, size_t size, unsigned flags)
{
    if (cuda_host_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (flags != CU_MEM_ATTACH_GLOBAL)
        return CUDA_ERROR_INVALID_VALUE;
    *memory = (CUdeviceptr)(uintptr_t)take(size, MANAGED);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr memory)
{
    give((void *)(uintptr_t)memory, false);
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    if (cuda_host_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = take(size, PINNED);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeHost(void *memory)
{
    give(memory, true);
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags)
{
    if (cuda_host_fails() || flags || kind_of(host, 0) != PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *device = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

bool cuda_host_on_device(const void *at, size_t size)
{
    enum kind kind = kind_of(at, size);

    return kind == DEVICE || kind == MANAGED || (kind == PINNED && cuda_host_settings.unified);
}

bool cuda_host_pinned(const void *at, size_t size)
{
    return kind_of(at, size) == PINNED;
}

void cuda_host_expect(const void *at, size_t size, const char *what)
{
    if (!cuda_host_on_device(at, size))
        stop(what, at, size);
}

void cuda_host_guard(bool working)
{
    if (!cuda_host_settings.apart)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ALLOCATIONS; i++)
        if (allocations[i].kind == MANAGED &&
            mprotect(allocations[i].memory, allocations[i].size,
                     working ? PROT_NONE : PROT_READ | PROT_WRITE))
            stop("memory cannot be guarded", allocations[i].memory, allocations[i].size);
    pthread_mutex_unlock(&lock);
}

void cuda_host_learn(struct cuda_host_clock *clock, const struct cuda_host_clock *other)
{
    for (uint32_t i = 0; i < CUDA_HOST_STREAMS; i++)
        if (other->seen[i] > clock->seen[i])
            clock->seen[i] = other->seen[i];
}

void cuda_host_access(struct cuda_host_clock *clock, uint32_t stream, const void *at, size_t size,
                      bool write)
{
    const char *first = at;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ACCESSES; i++) {
        const struct access *other = &accesses[i];

        if (other->size && first < other->at + other->size && other->at < first + size &&
            (write || other->write) && other->stream != stream &&
            clock->seen[other->stream] < other->when) {
            fprintf(stderr, "cuda_host: stream %u %s it at %llu, stream %u knows of %llu\n",
                    other->stream, other->write ? "wrote" : "read", (unsigned long long)other->when,
                    stream, (unsigned long long)clock->seen[other->stream]);
            stop("two streams meet that do not wait for each other", at, size);
        }
    }
    clock->seen[stream] = ++access_count;
    accesses[access_count % ACCESSES] = (struct access){first, size, access_count, stream, write};
    pthread_mutex_unlock(&lock);
}
