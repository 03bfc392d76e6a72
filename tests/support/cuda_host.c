#include "tests/support/cuda_host.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/compute_cuda.h"
#include "ports/cuda/compute_cuda_private.h"

static cn_err host_open(const struct cn_compute_config *config, struct cn_compute **device)
{
    struct cuda_library library = {0};

    cuda_host_fill_driver(&library);
    if (!cuda_host_settings.no_blas)
        cuda_host_fill_blas(&library);
    if (!cuda_host_settings.no_dnn)
        cuda_host_fill_dnn(&library);
    if (cuda_host_settings.loaded)
        library.handles[0] = dlopen(NULL, RTLD_NOW);
    return cuda_open_with(&library, &cn_compute_cuda_host, config, device);
}

// The other entries are the port's own functions. A table of constants cannot copy them from
// cn_compute_cuda.
static void host_close(struct cn_compute *device)
{
    cn_compute_cuda.close(device);
}

static uint32_t host_lanes(const struct cn_compute *device)
{
    return cn_compute_cuda.lanes(device);
}

static cn_err host_query(const struct cn_compute *device, const struct cn_call *call,
                         size_t samples, size_t *workspace)
{
    return cn_compute_cuda.query(device, call, samples, workspace);
}

static cn_err host_reserve(struct cn_compute *device, const struct cn_compute_sizes *sizes,
                           uint32_t samples)
{
    return cn_compute_cuda.reserve(device, sizes, samples);
}

static cn_err host_prepare(struct cn_compute *device, const struct cn_call *calls, size_t count,
                           struct cn_compute_program **program)
{
    return cn_compute_cuda.prepare(device, calls, count, program);
}

static void host_release(struct cn_compute *device, struct cn_compute_program *program)
{
    cn_compute_cuda.release(device, program);
}

static cn_err host_run(struct cn_compute *device, struct cn_compute_program *program,
                       const struct cn_hyper *hyper)
{
    return cn_compute_cuda.run(device, program, hyper);
}

static cn_err host_wait(struct cn_compute *device, struct cn_compute_result *result)
{
    return cn_compute_cuda.wait(device, result);
}

static cn_err host_map(struct cn_compute *device, enum cn_arena arena, void **host)
{
    return cn_compute_cuda.map(device, arena, host);
}

static cn_err host_unmap(struct cn_compute *device, enum cn_arena arena)
{
    return cn_compute_cuda.unmap(device, arena);
}

static cn_err host_show(struct cn_compute *device, enum cn_arena arena, size_t first, size_t count,
                        void **host)
{
    return cn_compute_cuda.show(device, arena, first, count, host);
}

static cn_err host_shown(struct cn_compute *device, bool wait)
{
    return cn_compute_cuda.shown(device, wait);
}

const struct cn_compute_ops cn_compute_cuda_host = {
    .name = "cuda_host",
    .open = host_open,
    .close = host_close,
    .lanes = host_lanes,
    .query = host_query,
    .reserve = host_reserve,
    .prepare = host_prepare,
    .release = host_release,
    .run = host_run,
    .wait = host_wait,
    .map = host_map,
    .unmap = host_unmap,
    .show = host_show,
    .shown = host_shown,
};

const struct cn_compute_ops *cuda_host_or_real(void)
{
    const struct cn_compute_config config = {.threads = 1};
    const char *wanted = getenv("CAIRN_COMPUTE");
    struct cn_compute *device;

    if (!wanted || strcmp(wanted, "cuda") != 0)
        return &cn_compute_cuda_host;
    if (cn_compute_cuda.open(&config, &device))
        exit(77);
    cn_compute_cuda.close(device);
    return &cn_compute_cuda;
}
