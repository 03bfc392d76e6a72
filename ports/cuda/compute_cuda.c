#include "ports/cuda/compute_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "ports/cuda/compute_cuda_private.h"
#include "ports/cuda/cuda_program.h"
#include "ports/cuda/device.h"
#include "runtime/base/log.h"

static struct cuda *cuda_of(struct cn_compute *device)
{
    return (struct cuda *)device;
}

// Makes the device's context current for the calling thread, because any thread may call.
static cn_err enter(struct cuda *cuda)
{
    return cuda_check(cuda, cuda->library.driver.context_set(cuda->context), "cuCtxSetCurrent");
}

static void cuda_close(struct cn_compute *device)
{
    struct cuda *cuda = cuda_of(device);
    struct cuda_library library;

    if (!cuda)
        return;
    library = cuda->library;
    cuda_device_close(cuda);
    free(cuda);
    cuda_library_close(&library);
}

cn_err cuda_open_with(const struct cuda_library *library, const struct cn_compute_ops *ops,
                      const struct cn_compute_config *config, struct cn_compute **device)
{
    struct cuda *cuda;
    cn_err err;

    if (config->precision > CN_PRECISION_TF32)
        return CN_EINVAL;
    cuda = calloc(1, sizeof(*cuda));
    if (!cuda)
        return CN_ENOMEM;
    cuda->base.ops = ops;
    err = cuda_device_open(cuda, library, config);
    if (err) {
        cuda_device_close(cuda);
        free(cuda);
        return err;
    }
    *device = &cuda->base;
    return CN_OK;
}

static cn_err cuda_open(const struct cn_compute_config *config, struct cn_compute **device)
{
    struct cuda_library library;
    cn_err err = cuda_library_open(&library, config->wanted ? CN_LOG_WARN : CN_LOG_DEBUG);

    if (err)
        return err;
    err = cuda_open_with(&library, &cn_compute_cuda, config, device);
    if (err)
        cuda_library_close(&library);
    return err;
}

static uint32_t cuda_lanes(const struct cn_compute *device)
{
    (void)device;
    return 1;
}

static cn_err cuda_query(const struct cn_compute *device, const struct cn_call *call,
                         size_t samples, size_t *workspace)
{
    // The plan of a convolution that is found here is kept for the call itself, so this port needs
    // the device not to be const.
    struct cuda *cuda = cuda_of((struct cn_compute *)(uintptr_t)device);
    cn_err err = enter(cuda);

    *workspace = 0;
    if (samples > UINT32_MAX)
        return CN_ENOTSUP;
    return err ? err : cuda_lower_query(cuda, call, samples, workspace);
}

static cn_err cuda_reserve(struct cn_compute *device, const struct cn_compute_sizes *sizes,
                           uint32_t samples)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_memory_reserve(cuda, sizes, samples);
}

static void cuda_release(struct cn_compute *device, struct cn_compute_program *program)
{
    struct cuda *cuda = cuda_of(device);

    (void)enter(cuda); // an error comes from the next run or wait
    cuda_program_release(cuda, program);
}

static cn_err cuda_prepare(struct cn_compute *device, const struct cn_call *calls, size_t count,
                           struct cn_compute_program **prepared)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_program_prepare(cuda, calls, count, prepared);
}

static cn_err cuda_run(struct cn_compute *device, struct cn_compute_program *program,
                       const struct cn_hyper *hyper)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_program_run(cuda, program, hyper);
}

// Waits, and reads the results of the runs since they were read before. The next run clears them on
// the device.
static cn_err read_result(struct cuda *cuda)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    struct cuda_state *state = cuda->result;
    cn_err err = CN_OK;

    if (cuda->read)
        *state = (struct cuda_state){.scale = state->scale, .steps = state->steps};
    else
        err = cuda_check(cuda, driver->copy_out(state, cuda->state, sizeof(*state), cuda->stream),
                         "cuMemcpyDtoHAsync");
    if (!err)
        err = cuda_check(cuda, driver->stream_wait(cuda->stream), "cuStreamSynchronize");
    cuda->read = cuda->read || !err;
    return err;
}

static cn_err cuda_wait(struct cn_compute *device, struct cn_compute_result *result)
{
    struct cuda *cuda = cuda_of(device);
    const struct cuda_state *state = cuda->result;
    cn_err err = enter(cuda);

    if (!err)
        err = read_result(cuda);
    if (!err)
        err = cuda->failed;
    cuda->failed = CN_OK;
    if (err)
        return err;
    *result = (struct cn_compute_result){.loss = state->loss,
                                         .weight = state->weight,
                                         .correct = state->correct,
                                         .finite = !state->bad,
                                         .norm = state->norm,
                                         .overflow = state->overflow != 0};
    if (cuda->precision == CN_PRECISION_FLOAT16)
        result->loss_scale = (struct cn_loss_scale){state->scale, state->steps};
    return state->outside ? CN_ERANGE : CN_OK;
}

static cn_err cuda_map(struct cn_compute *device, enum cn_arena arena, void **host)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_memory_map(cuda, arena, host);
}

static cn_err cuda_unmap(struct cn_compute *device, enum cn_arena arena)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_memory_unmap(cuda, arena);
}

static cn_err cuda_show(struct cn_compute *device, enum cn_arena arena, size_t first, size_t count,
                        void **host)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_memory_show(cuda, arena, first, count, host);
}

static cn_err cuda_shown(struct cn_compute *device, bool wait)
{
    struct cuda *cuda = cuda_of(device);
    cn_err err = enter(cuda);

    return err ? err : cuda_memory_shown(cuda, wait);
}

const struct cn_compute_ops cn_compute_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .lanes = cuda_lanes,
    .query = cuda_query,
    .reserve = cuda_reserve,
    .prepare = cuda_prepare,
    .release = cuda_release,
    .run = cuda_run,
    .wait = cuda_wait,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .show = cuda_show,
    .shown = cuda_shown,
};
