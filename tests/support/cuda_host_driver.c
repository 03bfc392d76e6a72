// A double of the CUDA driver.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/compute_cuda.h"
#include "ports/cuda/compute_cuda_private.h"
#include "ports/cuda/cuda_library.h"
#include "tests/support/cuda_host.h"
#include "tests/support/cuda_host_memory.h"

struct cuda_host_settings cuda_host_settings;
struct cuda_host_counts cuda_host_counts;

// Reads the properties of the GPU from the environment. They hold for the whole process.
__attribute__((constructor)) static void read_settings(void)
{
    const char *names = getenv("CAIRN_CUDA_HOST");

    if (!names)
        return;
    cuda_host_settings.unified = strstr(names, "unified") != NULL;
    cuda_host_settings.managed = strstr(names, "managed") != NULL;
    cuda_host_settings.late = strstr(names, "late") != NULL;
    cuda_host_settings.backwards = strstr(names, "backwards") != NULL;
    cuda_host_settings.apart = strstr(names, "apart") != NULL;
    cuda_host_settings.pageable = strstr(names, "pageable") != NULL;
    cuda_host_settings.block = strstr(names, "wide") ? 256 : 0;
    cuda_host_settings.devices = strstr(names, "two") ? 2 : 1;
}

struct work {
    struct work *next;
    void (*run)(const void *context);
    _Alignas(16) char context[];
};

struct graph {
    struct work *first, **end;
    uint64_t waiting; // number of launches that have not run
};

struct cuda_host_stream {
    struct graph *capturing;
    bool spoiled;              // the capture met a call that cannot be captured
    struct work *first, **end; // work that a late GPU has not done
    uint64_t submitted, done;
    uint32_t number;
    struct cuda_host_clock clock;
};

// A moment of a stream: the work submitted until then.
struct moment {
    struct cuda_host_stream *stream;
    uint64_t submitted;
    struct cuda_host_clock clock;
};

static _Thread_local struct cuda_host_clock host_clock;
static atomic_uint_least64_t waiting;          // amount of work in all streams that is not done
static atomic_bool numbers[CUDA_HOST_STREAMS]; // numbers of streams that are in use

// Does the next piece of work of a stream.
static void step(struct cuda_host_stream *stream)
{
    struct work *work = stream->first;

    stream->first = work->next;
    if (!stream->first)
        stream->end = &stream->first;
    cuda_host_guard(false);
    work->run(work->context);
    free(work);
    stream->done++;
    if (--waiting)
        cuda_host_guard(true);
}

static void reach(struct moment moment)
{
    while (moment.stream && moment.stream->done < moment.submitted)
        step(moment.stream);
}

static void run_wait(const void *context)
{
    reach(*(const struct moment *)context);
}

bool cuda_host_fails(void)
{
    uint64_t number = ++cuda_host_counts.driver_calls;
    uint64_t at = cuda_host_settings.fail_at;

    return at && (number == at || (cuda_host_settings.fail_on && number > at));
}

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return cuda_host_fails() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = cuda_host_settings.driver_version ? cuda_host_settings.driver_version : CUDA_VERSION;
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = cuda_host_settings.no_device ? 0
             : cuda_host_settings.devices ? cuda_host_settings.devices
                                          : 1;
    return cuda_host_fails() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int number)
{
    *device = number;
    return cuda_host_fails() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    (void)device;
    strncpy(name, "a GPU on the host", (size_t)size);
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    const struct cuda_host_settings *s = &cuda_host_settings;
    int capability = s->capability ? s->capability : 87;

    (void)device;
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = capability / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = capability % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = s->block ? (int)s->block : 64;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = s->processors ? s->processors : 8;
        break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        *value = s->unified;
        break;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        *value = s->managed;
        break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        *value = !s->apart;
        break;
    default:
        *value = 1;
    }
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    static int dummy;

    (void)device;
    *context = (CUcontext)&dummy;
    return cuda_host_fails() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return cuda_host_fails() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    static int dummy;

    *module = (CUmodule)&dummy;
    cuda_host_counts.modules++;
    cuda_host_counts.image = image;
    return cuda_host_fails() ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    int kernel = cuda_host_kernel(name);

    (void)module;
    *function = (CUfunction)(uintptr_t)(kernel + 1);
    return cuda_host_fails() || kernel < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    struct cuda_host_stream *made;

    (void)flags;
    if (cuda_host_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    made = calloc(1, sizeof(*made));
    if (!made)
        abort();
    made->end = &made->first;
    while (atomic_exchange(&numbers[made->number], true))
        if (++made->number == CUDA_HOST_STREAMS)
            abort();
    *stream = (CUstream)(void *)made;
    cuda_host_counts.allocations++;
    return CUDA_SUCCESS;
}

static struct moment now_of(CUstream stream)
{
    struct cuda_host_stream *queue = (struct cuda_host_stream *)(void *)stream;

    return (struct moment){queue, queue->submitted, queue->clock};
}

// Spoils the capture of a stream, for a call that cannot be captured.
static bool spoils(CUstream stream)
{
    struct cuda_host_stream *queue = (struct cuda_host_stream *)(void *)stream;

    queue->spoiled = queue->capturing != NULL;
    return queue->spoiled;
}

void cuda_host_warm(void *stream)
{
    struct cuda_host_stream *queue = stream;

    if (cuda_host_settings.cold && queue->capturing)
        queue->spoiled = true;
    else
        cuda_host_settings.cold = false;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    reach(now_of(stream));
    numbers[((struct cuda_host_stream *)(void *)stream)->number] = false;
    free(stream);
    cuda_host_counts.allocations--;
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct moment now = now_of(stream);

    if (spoils(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    reach(now);
    cuda_host_learn(&host_clock, &now.clock);
    return cuda_host_fails() ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct cuda_host_stream *queue = (struct cuda_host_stream *)(void *)stream;
    const struct moment *moment = (const struct moment *)(const void *)event;

    if (cuda_host_fails() || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (spoils(stream)) // the event does not belong to the capture
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    cuda_host_learn(&queue->clock, &moment->clock);
    cuda_host_submit(stream, run_wait, event, sizeof(struct moment));
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    struct moment *moment;

    (void)flags;
    if (cuda_host_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    moment = calloc(1, sizeof(*moment));
    *event = (CUevent)moment;
    cuda_host_counts.allocations++;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    free(event);
    cuda_host_counts.allocations--;
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    if (cuda_host_fails())
        return CUDA_ERROR_UNKNOWN;
    if (spoils(stream)) // the host cannot wait for an event of a capture
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *(struct moment *)(void *)event = now_of(stream);
    return CUDA_SUCCESS;
}

// Every second call answers that the GPU is not ready. A late GPU does a piece of work meanwhile.
CUresult cuEventQuery(CUevent event)
{
    const struct moment *moment = (const struct moment *)(const void *)event;
    static bool behind;

    behind = !behind;
    if (cuda_host_fails())
        return CUDA_ERROR_LAUNCH_FAILED;
    if (!moment->stream || moment->stream->done >= moment->submitted) {
        if (!behind)
            cuda_host_learn(&host_clock, &moment->clock);
        return behind ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    }
    step(moment->stream);
    return CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    const struct moment *moment = (const struct moment *)(const void *)event;

    reach(*moment);
    cuda_host_learn(&host_clock, &moment->clock);
    return cuda_host_fails() ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

void cuda_host_submit(void *stream, void (*run)(const void *context), const void *context,
                      size_t size)
{
    struct cuda_host_stream *queue = stream;
    struct work *work, ***end = queue->capturing ? &queue->capturing->end : &queue->end;

    cuda_host_learn(&queue->clock, &host_clock);
    if (!queue->capturing && !cuda_host_settings.late) {
        run(context);
        return;
    }
    work = malloc(sizeof(*work) + size);
    if (!work)
        abort();
    work->next = NULL;
    work->run = run;
    memcpy(work->context, context, size);
    **end = work;
    *end = &work->next;
    if (queue->capturing)
        return;
    queue->submitted++;
    waiting++;
    cuda_host_guard(true);
}

// Returns whether the GPU can read these bytes of the host's memory.
static bool takes(const void *at, size_t size)
{
    return cuda_host_settings.pageable || cuda_host_pinned(at, size);
}

struct copy {
    void *to;
    const void *from;
    size_t size;
};

static void run_copy(const void *context)
{
    const struct copy *copy = context;

    // None of the memory may have been freed meanwhile.
    if (!takes(copy->to, copy->size))
        cuda_host_expect(copy->to, copy->size, "a copy to no memory of the device");
    if (!takes(copy->from, copy->size))
        cuda_host_expect(copy->from, copy->size, "a copy from no memory of the device");
    memmove(copy->to, copy->from, copy->size);
}

static CUresult submit_copy(void *to, const void *from, size_t size, CUstream stream)
{
    struct cuda_host_stream *queue = (struct cuda_host_stream *)(void *)stream;
    struct copy copy = {to, from, size};

    if (cuda_host_fails())
        return CUDA_ERROR_INVALID_VALUE;
    cuda_host_learn(&queue->clock, &host_clock);
    cuda_host_access(&queue->clock, queue->number, from, size, false);
    cuda_host_access(&queue->clock, queue->number, to, size, true);
    cuda_host_submit(stream, run_copy, &copy, sizeof(copy));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    cuda_host_counts.copied_in += size;
    if (!cuda_host_on_device((void *)(uintptr_t)to, size) || !takes(from, size))
        return CUDA_ERROR_INVALID_VALUE;
    return submit_copy((void *)(uintptr_t)to, from, size, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    cuda_host_counts.copied_out += size;
    if (!cuda_host_on_device((void *)(uintptr_t)from, size) || !takes(to, size))
        return CUDA_ERROR_INVALID_VALUE;
    return submit_copy(to, (const void *)(uintptr_t)from, size, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    if (!cuda_host_on_device((void *)(uintptr_t)to, size) ||
        !cuda_host_on_device((void *)(uintptr_t)from, size))
        return CUDA_ERROR_INVALID_VALUE;
    return submit_copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size, stream);
}

struct fill {
    void *to;
    int byte;
    size_t size;
};

static void run_fill(const void *context)
{
    const struct fill *fill = context;

    memset(fill->to, fill->byte, fill->size);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream)
{
    struct fill fill = {(void *)(uintptr_t)to, byte, size};

    if (cuda_host_fails() || !cuda_host_on_device(fill.to, size))
        return CUDA_ERROR_INVALID_VALUE;
    cuda_host_submit(stream, run_fill, &fill, sizeof(fill));
    return CUDA_SUCCESS;
}

struct launch {
    int kernel;
    uint32_t blocks, threads;
    struct cuda_args args;
};

// The optimizer's state of a part of the model is addressed from the model's first word. That
// address may lie before all memory.
static void expect_operands(const struct cuda_args *args)
{
    static const char what[] = "an operand in no memory of the device";
    bool moved = args->call.op >= CN_OP_SGD;

    for (int i = 0; i < CN_CALL_INPUTS; i++)
        if (args->in[i] && !(moved && (i == 2 || i == 3)))
            cuda_host_expect(args->in[i], sizeof(float), what);
    for (int i = 0; i < CN_CALL_OUTPUTS; i++)
        if (args->out[i])
            cuda_host_expect(args->out[i], sizeof(float), what);
    cuda_host_expect(args->hyper, sizeof(*args->hyper), what);
    cuda_host_expect(args->state, sizeof(*args->state), what);
}

static void run_launch(const void *context)
{
    const struct launch *launch = context;

    expect_operands(&launch->args);
    cuda_host_run(launch->kernel, launch->blocks, launch->threads, &launch->args);
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y,
                        unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                        unsigned threads_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra)
{
    struct launch launch = {.kernel = (int)(uintptr_t)function - 1,
                            .blocks = blocks_x,
                            .threads = threads_x,
                            .args = *(const struct cuda_args *)parameters[0]};

    if (cuda_host_fails() || blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1 ||
        shared || extra || !blocks_x || !threads_x || threads_x > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    cuda_host_counts.launches++;
    cuda_host_submit(stream, run_launch, &launch, sizeof(launch));
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    struct cuda_host_stream *queue = (struct cuda_host_stream *)(void *)stream;

    (void)mode;
    if (cuda_host_fails() || queue->capturing)
        return CUDA_ERROR_ILLEGAL_STATE;
    queue->spoiled = false;
    queue->capturing = calloc(1, sizeof(*queue->capturing));
    queue->capturing->end = &queue->capturing->first;
    cuda_host_counts.allocations++;
    cuda_host_counts.captures++;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph opened)
{
    struct graph *graph = (struct graph *)(void *)opened;

    if (graph->waiting)
        abort(); // queued work still uses it
    while (graph->first) {
        struct work *next = graph->first->next;

        free(graph->first);
        graph->first = next;
    }
    free(graph);
    cuda_host_counts.allocations--;
    return cuda_host_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct cuda_host_stream *queue = (struct cuda_host_stream *)(void *)stream;
    struct graph *captured = queue->capturing;

    if (!captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    queue->capturing = NULL;
    *graph = (CUgraph)(void *)captured;
    if (!cuda_host_fails() && !cuda_host_settings.no_capture && !queue->spoiled)
        return CUDA_SUCCESS;
    cuGraphDestroy(*graph);
    *graph = NULL;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

// Copies the list of work into a prepared graph.
CUresult cuGraphInstantiateWithFlags(CUgraphExec *prepared, CUgraph opened,
                                     unsigned long long flags)
{
    struct graph *graph = (struct graph *)(void *)opened, *taken;

    (void)flags;
    if (cuda_host_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken = malloc(sizeof(*taken));
    *taken = *graph;
    graph->first = NULL;
    *prepared = (CUgraphExec)(void *)taken;
    cuda_host_counts.allocations++;
    return CUDA_SUCCESS;
}

static void run_graph(const void *context)
{
    struct graph *const *graph = context;

    for (struct work *work = (*graph)->first; work; work = work->next)
        work->run(work->context);
    (*graph)->waiting--;
    cuda_host_counts.launches_done++;
}

CUresult cuGraphLaunch(CUgraphExec prepared, CUstream stream)
{
    if (cuda_host_fails() || spoils(stream))
        return CUDA_ERROR_LAUNCH_FAILED;
    cuda_host_counts.graph_launches++;
    ((struct graph *)(void *)prepared)->waiting++;
    cuda_host_submit(stream, run_graph, &prepared, sizeof(CUgraphExec));
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec prepared)
{
    return cuGraphDestroy((CUgraph)(void *)prepared);
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

void cuda_host_fill_driver(struct cuda_library *library)
{
    library->driver = (struct cuda_driver){CUDA_DRIVER_FUNCTIONS(CUDA_HOST_ENTRY)};
}
