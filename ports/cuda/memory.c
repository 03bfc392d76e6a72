// The arenas, and how the host sees them.
//
// A GPU with memory of its own: each arena that the host may see has a pinned copy. map copies what
// the device wrote to it, unmap copies it back. A batch goes through a buffer on the device, so
// that its copy can run beside the work on the batch before.
//
// A GPU that shares the host's memory: both use one memory, and nothing is copied. Batches and
// outputs are pinned there, so the host may fill a batch while the GPU works. The other arenas are
// managed memory, which both may cache. Gradients are shown while the GPU works, so they are pinned
// too where the host must not touch managed memory then (Orin).
#include <assert.h>
#include <stdint.h>

#include "ports/cuda/device.h"
#include "runtime/base/log.h"

#define RESERVE 16 // words after an arena that may be read but are not used

// Allocates zeroed device memory. After an error *memory is 0, or memory to release.
static cn_err allocate(struct cuda *cuda, size_t bytes, CUdeviceptr *memory)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    cn_err err = cuda_check(cuda, driver->allocate(memory, bytes), "cuMemAlloc");

    if (err) {
        *memory = 0;
        return err;
    }
    return cuda_check(cuda, driver->fill_bytes(*memory, 0, bytes, cuda->stream), "cuMemsetD8Async");
}

static cn_err allocate_pinned(struct cuda *cuda, size_t bytes, void **memory)
{
    cn_err err =
        cuda_check(cuda,
                   cuda->library.driver.allocate_host(
                       memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                   "cuMemHostAlloc");

    if (err)
        *memory = NULL;
    return err;
}

// Allocates an arena that host and device share.
static cn_err share_arena(struct cuda *cuda, struct cuda_arena *arena, size_t bytes, bool managed)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    cn_err err;

    if (managed) {
        err =
            cuda_check(cuda, driver->allocate_managed(&arena->device, bytes, CU_MEM_ATTACH_GLOBAL),
                       "cuMemAllocManaged");
        if (err)
            arena->device = 0;
        else
            arena->host = (void *)(uintptr_t)arena->device;
    } else {
        err = allocate_pinned(cuda, bytes, &arena->host);
        if (!err)
            err = cuda_check(cuda, driver->host_pointer(&arena->device, arena->host, 0),
                             "cuMemHostGetDevicePointer");
        if (err)
            arena->device = 0;
    }
    if (err)
        return err;
    arena->same = true;
    arena->managed = managed;
    return cuda_check(cuda, driver->fill_bytes(arena->device, 0, bytes, cuda->stream),
                      "cuMemsetD8Async");
}

static cn_err reserve_arena(struct cuda *cuda, enum cn_arena which, size_t words)
{
    struct cuda_arena *arena = &cuda->arenas[which];
    bool pinned = which == CN_ARENA_BATCH || which == CN_ARENA_OUTPUTS ||
                  (which == CN_ARENA_GRADIENTS && cuda->apart);
    size_t bytes;
    cn_err err;

    // Kernels count words in 32 bits. cuda_lower_query has checked the operands of batch calls one
    // by one.
    if (which != CN_ARENA_ACTIVATIONS && words > INT32_MAX) {
        cn_log(CN_LOG_ERROR, "cuda", "%zu words of a model or batch, at most %d", words, INT32_MAX);
        return CN_ENOTSUP;
    }
    arena->words = words;
    if (__builtin_add_overflow(words, (size_t)RESERVE, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes))
        return CN_ENOMEM;
    if (which == CN_ARENA_ACTIVATIONS)
        return allocate(cuda, bytes, &arena->device);
    if (cuda->unified)
        return share_arena(cuda, arena, bytes, cuda->managed && !pinned);
    err = allocate(cuda, bytes, &arena->device);
    if (!err)
        err = allocate_pinned(cuda, bytes, &arena->host);
    if (!err && which == CN_ARENA_BATCH)
        err = allocate(cuda, bytes, &cuda->staging);
    arena->stale = true;
    return err;
}

cn_err cuda_memory_reserve(struct cuda *cuda, const struct cn_compute_sizes *sizes,
                           uint32_t samples)
{
    size_t groups = sizes->words[CN_ARENA_GRADIENTS] / 256 + 1;
    cn_err err = CN_OK;

    assert(!cuda->state);
    cuda->samples = samples;
    for (int i = 1; i < CN_ARENA_COUNT && !err; i++)
        err = reserve_arena(cuda, (enum cn_arena)i, sizes->words[i]);
    if (!err)
        err = allocate(cuda, sizeof(struct cuda_state), &cuda->state);
    if (!err)
        err = allocate(cuda, sizeof(struct cn_hyper), &cuda->hyper);
    for (int i = 0; i < 2 && !err; i++)
        err = allocate(cuda, groups * sizeof(double), &cuda->squares[i]);
    if (!err)
        err = allocate_pinned(cuda, sizeof(struct cuda_state), (void **)&cuda->result);
    if (!err) {
        *cuda->result =
            (struct cuda_state){.scale = cuda->precision == CN_PRECISION_FLOAT16 ? 65536 : 1};
        err = cuda_check(cuda,
                         cuda->library.driver.copy_in(cuda->state, cuda->result,
                                                      sizeof(*cuda->result), cuda->stream),
                         "cuMemcpyHtoDAsync");
    }
    return err ? err
               : cuda_check(cuda, cuda->library.driver.stream_wait(cuda->stream),
                            "cuStreamSynchronize");
}

void cuda_memory_release(struct cuda *cuda)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    CUdeviceptr rest[] = {cuda->staging, cuda->state, cuda->hyper, cuda->squares[0],
                          cuda->squares[1]};

    for (int i = 0; i < CN_ARENA_COUNT; i++) {
        struct cuda_arena *arena = &cuda->arenas[i];

        if (arena->device && (!arena->same || arena->managed))
            driver->release(arena->device);
        if (arena->host && !arena->managed)
            driver->release_host(arena->host);
    }
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
        if (rest[i])
            driver->release(rest[i]);
    if (cuda->result)
        driver->release_host(cuda->result);
}

// Waits for the copies of shown parts for which shown() was not called because of an error. They
// may still be in progress.
static cn_err end_shows(struct cuda *cuda, const struct cuda_arena *arena)
{
    if (!arena->shown || cuda->seen == cuda->show_count)
        return CN_OK;
    return cuda_check(cuda, cuda->library.driver.stream_wait(cuda->copies), "cuStreamSynchronize");
}

cn_err cuda_memory_map(struct cuda *cuda, enum cn_arena which, void **host)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    struct cuda_arena *arena = &cuda->arenas[which];
    cn_err err;

    assert(which != CN_ARENA_ACTIVATIONS && which != CN_ARENA_NONE);
    *host = arena->host;
    // The device does not write batches, so only the previous copy must have read the host's
    // memory.
    if (which == CN_ARENA_BATCH && !arena->same && !arena->stale)
        return cuda_check(cuda, driver->event_wait(cuda->filled), "cuEventSynchronize");
    err = end_shows(cuda, arena);
    if (!err)
        err = cuda_check(cuda, driver->stream_wait(cuda->stream), "cuStreamSynchronize");
    if (err || arena->same || !arena->stale || !arena->words)
        return err;
    err = cuda_check(
        cuda,
        driver->copy_out(arena->host, arena->device, arena->words * sizeof(float), cuda->stream),
        "cuMemcpyDtoHAsync");
    if (!err)
        err = cuda_check(cuda, driver->stream_wait(cuda->stream), "cuStreamSynchronize");
    arena->stale = err != CN_OK;
    return err;
}

// Sends a batch through the staging buffer, once the previous batch has left that.
static cn_err send_batch(struct cuda *cuda, struct cuda_arena *arena)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    size_t bytes = arena->words * sizeof(float);
    CUresult result = driver->stream_wait_event(cuda->copies, cuda->taken, 0);

    if (!result)
        result = driver->copy_in(cuda->staging, arena->host, bytes, cuda->copies);
    if (!result)
        result = driver->event_record(cuda->filled, cuda->copies);
    if (!result)
        result = driver->stream_wait_event(cuda->stream, cuda->filled, 0);
    if (!result)
        result = driver->copy_within(arena->device, cuda->staging, bytes, cuda->stream);
    if (!result)
        result = driver->event_record(cuda->taken, cuda->stream);
    return cuda_check(cuda, result, "the copy of a batch");
}

cn_err cuda_memory_unmap(struct cuda *cuda, enum cn_arena which)
{
    struct cuda_arena *arena = &cuda->arenas[which];
    size_t words = arena->shown ? arena->shown : arena->words;
    cn_err err = end_shows(cuda, arena);

    if (arena->shown)
        cuda->show_count = cuda->seen = 0;
    arena->shown = 0;
    if (err || arena->same || !words)
        return err;
    if (which == CN_ARENA_BATCH)
        return send_batch(cuda, arena);
    return cuda_check(cuda,
                      cuda->library.driver.copy_in(arena->device, arena->host,
                                                   words * sizeof(float), cuda->stream),
                      "cuMemcpyHtoDAsync");
}

// Copies a part to the host on the second stream, so that the stream of the work stays free.
static CUresult copy_part(struct cuda *cuda, struct cuda_arena *arena, size_t first, size_t count)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    CUresult result = driver->event_record(cuda->complete, cuda->stream);

    if (!result)
        result = driver->stream_wait_event(cuda->copies, cuda->complete, 0);
    if (!result && count)
        result =
            driver->copy_out((float *)arena->host + first, arena->device + first * sizeof(float),
                             count * sizeof(float), cuda->copies);
    return result;
}

cn_err cuda_memory_show(struct cuda *cuda, enum cn_arena which, size_t first, size_t count,
                        void **host)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    struct cuda_arena *arena = &cuda->arenas[which];
    CUresult result = CUDA_SUCCESS;

    assert(cuda->show_count < CN_COMPUTE_SHOWS && first == arena->shown);
    if (!arena->same)
        result = copy_part(cuda, arena, first, count);
    if (!result)
        result = driver->event_record(cuda->shows[cuda->show_count++],
                                      arena->same ? cuda->stream : cuda->copies);
    arena->shown = first + count;
    arena->stale = false; // until a run writes to it
    *host = (float *)arena->host + first;
    return cuda_check(cuda, result, "showing a part");
}

cn_err cuda_memory_shown(struct cuda *cuda, bool wait)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    CUevent event = cuda->shows[cuda->seen];
    CUresult result;

    assert(cuda->seen < cuda->show_count);
    result = wait ? driver->event_wait(event) : driver->event_query(event);
    if (result == CUDA_ERROR_NOT_READY)
        return CN_EAGAIN;
    cuda->seen++;
    return cuda_check(cuda, result, "a part that is shown");
}
