#include "ports/nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct nccl_library library; // filled once, by load
static const char *missing;         // why it could not be filled; NULL: it was
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define DEVICES 16
// Before they see an abort, the threads of a communicator poll for up to 500 ms each
// (src/proxy.cc), and up to 2.21 the 16 communicators of an epoch end one after the other: 8 s, and
// some more.
#define ABORT_MS 10000
#define CUDA_INVALID_DEVICE 101

// Functions of the driver that make a device current for a thread.
static int (*device_get)(int *device, int ordinal);
static int (*context_retain)(void **made, int device);
static int (*context_set)(void *context);
static void *contexts[DEVICES]; // primary contexts used so far; never released
static pthread_mutex_t contexts_mutex = PTHREAD_MUTEX_INITIALIZER;

// Looks up a symbol and stores it in *function. ISO C does not allow casting void * to a function
// pointer; POSIX allows copying it.
static bool find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);

    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

// Makes a device's primary context current for this thread. Returns a CUresult.
static int device_enter(unsigned number)
{
    int device = 0, result = CUDA_SUCCESS;

    if (number >= DEVICES)
        return CUDA_INVALID_DEVICE;
    pthread_mutex_lock(&contexts_mutex);
    if (!contexts[number])
        result = device_get(&device, (int)number);
    if (!result && !contexts[number])
        result = context_retain(&contexts[number], device);
    pthread_mutex_unlock(&contexts_mutex);
    return result ? result : context_set(contexts[number]);
}

static bool has_device(void *handle)
{
    int (*driver_init)(unsigned flags);
    int (*device_count)(int *count);
    int count;

    return find(handle, "cuInit", &driver_init) &&
           find(handle, "cuDeviceGetCount", &device_count) && !driver_init(0) &&
           !device_count(&count) && count > 0;
}

static bool load_driver(void *handle)
{
    library.device_enter = device_enter;
    return find(handle, "cuDeviceGet", &device_get) &&
           find(handle, "cuDevicePrimaryCtxRetain", &context_retain) &&
           find(handle, "cuCtxSetCurrent", &context_set) &&
           find(handle, "cuStreamCreate", &library.stream_create) &&
           find(handle, "cuStreamDestroy_v2", &library.stream_destroy) &&
           find(handle, "cuEventCreate", &library.event_create) &&
           find(handle, "cuEventRecord", &library.event_record) &&
           find(handle, "cuEventQuery", &library.event_query) &&
           find(handle, "cuEventDestroy_v2", &library.event_destroy) &&
           find(handle, "cuMemAlloc_v2", &library.memory_take) &&
           find(handle, "cuMemFree_v2", &library.memory_free) &&
           find(handle, "cuMemcpyHtoDAsync_v2", &library.copy_in) &&
           find(handle, "cuMemcpyDtoHAsync_v2", &library.copy_out);
}

static bool load_nccl(void)
{
    void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    return handle && find(handle, "ncclGetVersion", &library.get_version) &&
           find(handle, "ncclGetUniqueId", &library.get_unique_id) &&
           find(handle, "ncclCommInitRankConfig", &library.comm_init) &&
           find(handle, "ncclCommSplit", &library.comm_split) &&
           find(handle, "ncclCommGetAsyncError", &library.comm_error) &&
           find(handle, "ncclCommFinalize", &library.comm_finalize) &&
           find(handle, "ncclCommDestroy", &library.comm_destroy) &&
           find(handle, "ncclCommAbort", &library.comm_abort) &&
           find(handle, "ncclAllReduce", &library.all_reduce) &&
           find(handle, "ncclReduce", &library.reduce) &&
           find(handle, "ncclBroadcast", &library.broadcast) &&
           find(handle, "ncclSend", &library.send) && find(handle, "ncclRecv", &library.receive) &&
           find(handle, "ncclGroupStart", &library.group_start) &&
           find(handle, "ncclGroupEnd", &library.group_end);
}

static void load(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    library.abort_ms = ABORT_MS;
    // One algorithm and protocol give the same bits in every run. NCCL reads these variables once.
    (void)setenv("NCCL_ALGO", "Ring", 0);
    (void)setenv("NCCL_PROTO", "Simple", 0);
    (void)setenv("NCCL_RAS_ENABLE", "0", 0); // no listening socket that nobody asked for
    if (!driver || !load_driver(driver))
        missing = "libcuda.so.1 is not there, or too old";
    else if (!has_device(driver))
        missing = "there is no CUDA device";
    else if (!load_nccl())
        missing = "libnccl.so.2 is not there, or older than 2.18";
}

const struct nccl_library *nccl_library_load(const char **why)
{
    pthread_once(&once, load);
    *why = missing;
    return missing ? NULL : &library;
}
