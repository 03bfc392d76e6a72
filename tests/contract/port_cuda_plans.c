// The plans of dnn_plan.h from the real cuDNN, for GPUs that are not here.
//
// cuDNN can be asked without a device: a description of the GPU takes the place of a handle, in the
// heuristics and in the plan, and the graph goes without one. That is the only difference to what
// the port does. Skipped (77) where cuDNN is not installed or is too old for such questions.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the ones above.
#include <cmocka.h>

#include "ports/cuda/dnn_plan.h"

#define WORKSPACE ((size_t)256 << 20)
#define DESCRIPTORS 256

// Numbers of cudnn_graph.h since 9.8; the headers may be older.
enum {
    DEVICE = 38,
    OF_HEURISTICS = 204,
    OF_PLAN = 407,
    AS_JSON = 2702,
};

struct gpu {
    const char *name;
    int version, processors, shared, blocks, threads, cache;
};

static const struct gpu gpus[] = {
    {"H100", 900, 132, 232448, 32, 2048, 52428800},
    {"Orin", 870, 16, 167936, 16, 1536, 4194304},
    {"Thor", 1100, 20, 232448, 32, 2048, 4194304},
};

// Of the library: its real functions, and what stands for the GPU.
static struct cuda_dnn real;
static cudnnBackendDescriptor_t device;

// The descriptors of heuristics that exist.
static cudnnBackendDescriptor_t heuristics[DESCRIPTORS];
static size_t heuristics_count;

static cudnnStatus_t describe(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    cudnnStatus_t status = real.describe(type, made);

    if (!status && type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
        assert_true(heuristics_count < DESCRIPTORS);
        heuristics[heuristics_count++] = *made;
    }
    return status;
}

static cudnnStatus_t forget(cudnnBackendDescriptor_t descriptor)
{
    for (size_t i = 0; i < heuristics_count; i++)
        if (heuristics[i] == descriptor)
            heuristics[i] = heuristics[--heuristics_count];
    return real.forget(descriptor);
}

static cudnnStatus_t set_device(cudnnBackendDescriptor_t descriptor, int name)
{
    return real.set(descriptor, (cudnnBackendAttributeName_t)name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &device);
}

static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return set_device(descriptor, OF_PLAN);
    return real.set(descriptor, name, type, count, value);
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    for (size_t i = 0; i < heuristics_count; i++)
        if (heuristics[i] == descriptor) {
            cudnnStatus_t status = set_device(descriptor, OF_HEURISTICS);

            if (status)
                return status;
        }
    return real.finalize(descriptor);
}

static struct cuda_dnn without_gpu(void)
{
    return (struct cuda_dnn){
        .describe = describe,
        .forget = forget,
        .set = set,
        .finalize = finalize,
        .get = real.get,
    };
}

static bool make_device(const struct gpu *gpu)
{
    char text[1024];
    int length =
        snprintf(text, sizeof(text),
                 "{\"deviceName\":\"%s\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,"
                 "\"multiProcessorCount\":%d,\"smCountOrigin\":0,\"smClockRateKHz\":1000000,"
                 "\"memClockRateKHz\":2000000,\"l2CacheSize\":%d,\"warpSize\":32,"
                 "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
                 "\"reservedSharedMemoryPerBlock\":1024,\"oversizedSharedMemoryPerBlock\":0,"
                 "\"maxRegistersPerSM\":65536,\"regsPerBlock\":65536,\"pciDeviceId\":0,"
                 "\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,"
                 "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":8000000000,"
                 "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
                 "\"minVSL\":0,\"isVSLSupported\":false}",
                 gpu->name, gpu->version, gpu->processors, gpu->cache, gpu->shared, gpu->blocks,
                 gpu->threads);

    return !real.describe((cudnnBackendDescriptorType_t)DEVICE, &device) &&
           !real.set(device, (cudnnBackendAttributeName_t)AS_JSON, CUDNN_TYPE_CHAR, length, text) &&
           !real.finalize(device);
}

// Rows and columns are equal where a number stands for both.
static const struct shape {
    const char *name;
    uint32_t samples, channels_in, channels_out, groups;
    uint32_t in[2], out[2], kernel[2], pad[2];
    uint32_t stride, dilation;
} shapes[] = {
    {"3 x 3", 32, 64, 64, 1, {56, 56}, {56, 56}, {3, 3}, {1, 1}, 1, 1},
    {"7 x 7 of images, every second", 32, 3, 64, 1, {224, 224}, {112, 112}, {7, 7}, {3, 3}, 2, 1},
    {"3 x 3, every second", 32, 128, 256, 1, {28, 28}, {14, 14}, {3, 3}, {1, 1}, 2, 1},
    {"each channel apart", 32, 96, 96, 96, {28, 28}, {28, 28}, {3, 3}, {1, 1}, 1, 1},
    {"four groups", 8, 64, 64, 4, {28, 28}, {28, 28}, {3, 3}, {1, 1}, 1, 1},
    {"1 x 1", 32, 256, 64, 1, {56, 56}, {56, 56}, {1, 1}, {0, 0}, 1, 1},
    {"1 x 1, every second", 4, 64, 128, 1, {56, 56}, {28, 28}, {1, 1}, {0, 0}, 2, 1},
    {"pads at the end only", 8, 16, 32, 1, {32, 32}, {16, 16}, {3, 3}, {0, 0}, 2, 1},
    {"a series", 8, 8, 16, 1, {1, 100}, {1, 100}, {1, 5}, {0, 2}, 1, 1},
    {"odd numbers", 3, 3, 5, 1, {7, 9}, {7, 9}, {3, 3}, {1, 1}, 1, 1},
    {"wide apart", 8, 32, 32, 1, {28, 28}, {28, 28}, {3, 3}, {2, 2}, 1, 2},
};

static struct cn_window window_of(const struct shape *shape)
{
    struct cn_window window = {.channels_in = shape->channels_in,
                               .channels_out = shape->channels_out,
                               .groups = shape->groups};

    for (int i = 0; i < 2; i++) {
        window.in[i] = shape->in[i];
        window.out[i] = shape->out[i];
        window.kernel[i] = shape->kernel[i];
        window.pad[i] = shape->pad[i];
        window.stride[i] = shape->stride;
        window.dilation[i] = shape->dilation;
    }
    return window;
}

// Returns 1 when cuDNN has no plan that the port takes.
static int lacks_plan(const struct gpu *gpu, const struct shape *shape, enum cn_op op,
                      enum cn_precision precision)
{
    const struct cn_window window = window_of(shape);
    struct cuda_dnn dnn = without_gpu();
    struct dnn_plan plan;
    cn_err err =
        dnn_plan_open(&dnn, NULL, op, &window, shape->samples, precision, WORKSPACE, &plan);

    if (err)
        print_error("%s: no plan for %s, op %d, precision %d\n", gpu->name, shape->name, op,
                    precision);
    dnn_plan_close(&dnn, &plan);
    return err != CN_OK;
}

static void has_a_plan_for_each_convolution(void **state)
{
    static const enum cn_op ops[] = {CN_OP_CONV, CN_OP_CONV_GRAD_INPUT, CN_OP_CONV_GRAD_WEIGHT};
    const struct gpu *gpu = *state;
    int lacking = 0;

    if (!make_device(gpu)) {
        print_message("cuDNN %zu does not know %s without a device\n", real.version(), gpu->name);
        skip();
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int op = 0; op < 3; op++)
            for (int precision = CN_PRECISION_FLOAT32; precision <= CN_PRECISION_TF32; precision++)
                lacking += lacks_plan(gpu, &shapes[i], ops[op], (enum cn_precision)precision);
    assert_int_equal(real.forget(device), CUDNN_STATUS_SUCCESS);
    assert_int_equal(heuristics_count, 0);
    assert_int_equal(lacking, 0);
}

static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

static bool open_library(void)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);

    return library && find(library, "cudnnGetVersion", &real.version) &&
           find(library, "cudnnBackendCreateDescriptor", &real.describe) &&
           find(library, "cudnnBackendDestroyDescriptor", &real.forget) &&
           find(library, "cudnnBackendSetAttribute", &real.set) &&
           find(library, "cudnnBackendFinalize", &real.finalize) &&
           find(library, "cudnnBackendGetAttribute", &real.get);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(has_a_plan_for_each_convolution, (void *)&gpus[0]),
        cmocka_unit_test_prestate(has_a_plan_for_each_convolution, (void *)&gpus[1]),
        cmocka_unit_test_prestate(has_a_plan_for_each_convolution, (void *)&gpus[2]),
    };

    if (!open_library()) {
        printf("no cuDNN 9 is installed: %s\n", dlerror());
        return 77;
    }
    printf("cuDNN %zu\n", real.version());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
