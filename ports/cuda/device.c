#include "ports/cuda/device.h"

#include <string.h>

#include "ports/cuda/convolution.h"
#include "ports/cuda/kept.h"
#include "ports/cuda/kernels_image.h"
#include "runtime/base/log.h"

// Capability times 10; needed for bfloat16 and for the PTX that is built in.
#define CAPABILITY_LEAST 80

static const char *const kernel_names[CUDA_KERNEL_COUNT] = {
#define KERNEL_NAME(name) "cuda_kernel_" #name,
    CUDA_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
};

cn_err cuda_check(const struct cuda *cuda, CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return CN_OK;
    if (cuda->library.driver.error_name(result, &name) || !name)
        name = "unknown error";
    cn_log(CN_LOG_ERROR, "cuda", "%s: %s (%d)", what, name, (int)result);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CN_ENOMEM : CN_EIO;
}

// Logs why no GPU is used, quietly if the CPU is acceptable too.
static cn_err absent(const struct cuda *cuda, CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS || cuda->library.driver.error_name(result, &name) || !name)
        name = "nothing there";
    cn_log(cuda->absence, "cuda", "no GPU is used: %s: %s", what, name);
    return CN_ENOTSUP;
}

static int attribute(const struct cuda *cuda, CUdevice_attribute which)
{
    int value = 0;

    if (cuda->library.driver.device_attribute(&value, which, cuda->device))
        return 0;
    return value;
}

// Finds GPU number `number` and checks that the driver and the GPU are new enough.
static cn_err find_device(struct cuda *cuda, uint32_t number)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    int count = 0, version = 0, capability;
    char name[128] = "";
    CUresult result = driver->init(0);

    if (result)
        return absent(cuda, result, "cuInit");
    result = driver->driver_version(&version);
    if (result || version < cuda_images_driver) {
        cn_log(cuda->absence, "cuda", "no GPU is used: the driver is for CUDA %d.%d, wanted %d.%d",
               version / 1000, version % 1000 / 10, cuda_images_driver / 1000,
               cuda_images_driver % 1000 / 10);
        return CN_ENOTSUP;
    }
    result = driver->device_count(&count);
    if (result || count < 1)
        return absent(cuda, result, "cuDeviceGetCount");
    if (number >= (uint32_t)count) {
        cn_log(CN_LOG_ERROR, "cuda", "there is no GPU %u: this machine has %d, counted from 0",
               number, count);
        return CN_ENOTSUP;
    }
    result = driver->device_get(&cuda->device, (int)number);
    if (result)
        return absent(cuda, result, "cuDeviceGet");
    if (driver->device_name(name, sizeof(name), cuda->device))
        name[0] = '\0';
    capability = 10 * attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                 attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    if (capability < CAPABILITY_LEAST) {
        cn_log(cuda->absence, "cuda", "no GPU is used: %s has compute capability %d.%d, wanted 8.0",
               name, capability / 10, capability % 10);
        return CN_ENOTSUP;
    }
    cuda->base.capability = (uint32_t)capability;
    cn_log(CN_LOG_DEBUG, "cuda", "%s, compute capability %d.%d", name, capability / 10,
           capability % 10);
    return CN_OK;
}

static void read_limits(struct cuda *cuda)
{
    int threads = attribute(cuda, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    int processors = attribute(cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

    cuda->threads = threads > 0 && threads < 256 ? (uint32_t)threads / 32 * 32 : 256;
    cuda->processors = processors > 0 ? (uint32_t)processors : 1;
    cuda->grid = CUDA_GRID_TURNS * cuda->processors;
    cuda->unified = attribute(cuda, CU_DEVICE_ATTRIBUTE_INTEGRATED) > 0;
    // NVIDIA recommends 32 MiB from Hopper on and 4 MiB before (cublasSetWorkspace). On a board,
    // whose few processors are busy with small products, 4 MiB are enough.
    cuda->product_words = cuda->base.capability >= 90 && !cuda->unified ? 8u << 20 : 1u << 20;
    cuda->managed = cuda->unified && attribute(cuda, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) > 0;
    cuda->apart =
        cuda->managed && attribute(cuda, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) <= 0;
}

static cn_err load_kernels(struct cuda *cuda)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    const struct cuda_image *image = cuda_images;
    CUresult result;

    while (image->capability && image->capability != cuda->base.capability)
        image++;
    result = driver->module_load(&cuda->module, image->data);
    if (result) {
        cuda->module = NULL;
        return absent(cuda, result, "the kernels of this build do not fit the GPU and its driver");
    }
    for (int i = 0; i < CUDA_KERNEL_COUNT; i++) {
        result = driver->module_function(&cuda->kernels[i], cuda->module, kernel_names[i]);
        if (result)
            return cuda_check(cuda, result, kernel_names[i]);
    }
    return CN_OK;
}

// Creates the streams and events.
static cn_err make_queues(struct cuda *cuda)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    CUresult result = driver->stream_create(&cuda->stream, CU_STREAM_NON_BLOCKING);

    if (!result)
        result = driver->stream_create(&cuda->copies, CU_STREAM_NON_BLOCKING);
    if (!result)
        result = driver->event_create(&cuda->filled, CU_EVENT_DISABLE_TIMING);
    if (!result)
        result = driver->event_create(&cuda->taken, CU_EVENT_DISABLE_TIMING);
    if (!result)
        result = driver->event_create(&cuda->complete, CU_EVENT_DISABLE_TIMING);
    for (int i = 0; i < CN_COMPUTE_SHOWS && !result; i++)
        result = driver->event_create(&cuda->shows[i], CU_EVENT_DISABLE_TIMING);
    return cuda_check(cuda, result, "a stream");
}

// Sets cuDNN's stream to the device's. If that fails, cuDNN is not used.
static void aim_dnn(struct cuda *cuda)
{
    if (!cuda->dnn || !cuda->library.dnn.set_stream(cuda->dnn, cuda->stream))
        return;
    cuda->library.dnn.destroy(cuda->dnn);
    cuda->dnn = NULL;
}

// Starts cuBLASLt and cuDNN. Without them the port uses its own kernels.
static void open_libraries(struct cuda *cuda)
{
    if (cuda->library.blas.create && cuda->library.blas.create(&cuda->blas)) {
        cn_log(CN_LOG_WARN, "cuda", "cuBLASLt does not start; products are slower");
        cuda->blas = NULL;
    }
    if (!cuda->library.dnn.create)
        return;
    if (cuda->library.dnn.version() < 90300) {
        cn_log(CN_LOG_WARN, "cuda", "cuDNN is %zu, wanted 9.3; convolutions are slower",
               cuda->library.dnn.version());
        return;
    }
    if (cuda->library.dnn.create(&cuda->dnn)) {
        cn_log(CN_LOG_WARN, "cuda", "cuDNN does not start; convolutions are slower");
        cuda->dnn = NULL;
    }
}

cn_err cuda_device_open(struct cuda *cuda, const struct cuda_library *library,
                        const struct cn_compute_config *config)
{
    bool kept = false;
    cn_err err;

    cuda->library = *library;
    cuda->number = config->number;
    cuda->precision = config->precision;
    cuda->absence = config->wanted ? CN_LOG_WARN : CN_LOG_DEBUG;
    err = find_device(cuda, config->number);
    if (err)
        return err;
    read_limits(cuda);
    err = cuda_check(cuda, cuda->library.driver.context_retain(&cuda->context, cuda->device),
                     "cuDevicePrimaryCtxRetain");
    if (!err)
        err = cuda_check(cuda, cuda->library.driver.context_set(cuda->context), "cuCtxSetCurrent");
    if (!err)
        kept = cuda_kept_take(cuda);
    if (!err && !kept)
        err = load_kernels(cuda);
    if (!err)
        err = make_queues(cuda);
    if (!err && !kept)
        open_libraries(cuda);
    if (!err)
        aim_dnn(cuda);
    return err;
}

void cuda_device_close(struct cuda *cuda)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    bool well;

    if (!cuda->context)
        return;
    // Errors are ignored from here on: everything is released, whatever the device reports.
    well = driver->context_set(cuda->context) == CUDA_SUCCESS && cuda->stream &&
           driver->stream_wait(cuda->stream) == CUDA_SUCCESS;
    if (!well && cuda->stream)
        cn_log(CN_LOG_WARN, "cuda", "closed after an error of the device");
    cuda_conv_release(cuda);
    cuda_memory_release(cuda);
    if (well)
        cuda_kept_leave(cuda);
    if (cuda->blas)
        cuda->library.blas.destroy(cuda->blas);
    if (cuda->dnn)
        cuda->library.dnn.destroy(cuda->dnn);
    if (cuda->filled)
        driver->event_destroy(cuda->filled);
    if (cuda->taken)
        driver->event_destroy(cuda->taken);
    if (cuda->complete)
        driver->event_destroy(cuda->complete);
    for (int i = 0; i < CN_COMPUTE_SHOWS; i++)
        if (cuda->shows[i])
            driver->event_destroy(cuda->shows[i]);
    if (cuda->copies)
        driver->stream_destroy(cuda->copies);
    if (cuda->stream)
        driver->stream_destroy(cuda->stream);
    if (cuda->module)
        driver->module_unload(cuda->module);
    // The context stays for the rest of the process. The driver resets a primary context when its
    // last reference goes, and cuBLASLt and cuDNN keep state in it (CUDA driver API, "Primary
    // Context Management").
}

static cn_err launch(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                     uint64_t blocks, uint32_t threads)
{
    void *parameters[] = {args};

    if (!blocks)
        return CN_OK;
    if (blocks > cuda->grid)
        blocks = cuda->grid;
    return cuda_check(cuda,
                      cuda->library.driver.launch(cuda->kernels[kernel], (unsigned)blocks, 1, 1,
                                                  threads, 1, 1, 0, cuda->stream, parameters, NULL),
                      kernel_names[kernel]);
}

cn_err cuda_launch_threads(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                           uint64_t count)
{
    return launch(cuda, kernel, args, count / cuda->threads + (count % cuda->threads != 0),
                  cuda->threads);
}

// Returns whether the threads of a block divide a tile of fixed size among themselves.
static bool needs_full_block(enum cuda_kernel kernel)
{
    return kernel == CUDA_KERNEL_products ||
           (kernel >= CUDA_KERNEL_attention && kernel <= CUDA_KERNEL_attention_grad_key_float16);
}

cn_err cuda_launch_blocks(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                          uint64_t blocks)
{
    return launch(cuda, kernel, args, blocks,
                  needs_full_block(kernel) ? CUDA_TILE_THREADS : cuda->threads);
}
