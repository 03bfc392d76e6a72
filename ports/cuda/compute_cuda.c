#include "ports/cuda/compute_cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/compute_cuda_private.h"
#include "ports/cuda/device.h"
#include "ports/cuda/products.h"
#include "runtime/base/log.h"

struct cn_compute_program {
    CUgraphExec graph;           // NULL: each run queues the calls again
    bool writes[CN_ARENA_COUNT]; // arenas that the program writes
    size_t count;
    struct cn_call calls[];
};

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

    if (config->precision > CN_PRECISION_FLOAT16)
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

static bool is_flat(const struct cn_compute_program *program)
{
    return program->count && program->calls[0].op >= CN_OP_BATCH_COUNT;
}

static bool same_operand(const struct cn_operand *a, const struct cn_operand *b)
{
    return a->arena == b->arena && a->offset == b->offset && a->stride == b->stride;
}

// Returns whether an earlier input of the program, or of this call, is the same operand.
static bool seen_before(const struct cn_compute_program *program, size_t call, int input)
{
    const struct cn_operand *operand = &program->calls[call].in[input];

    for (size_t i = 0; i <= call; i++)
        for (int j = 0; j < (i == call ? input : CN_CALL_INPUTS); j++)
            if (same_operand(&program->calls[i].in[j], operand))
                return true;
    return false;
}

// Fills the batch up by repeating its samples, because kernels and libraries always compute the
// largest batch.
static cn_err repeat_samples(struct cuda *cuda, const struct cn_compute_program *program)
{
    for (size_t i = 0; i < program->count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++) {
            const struct cn_operand *operand = &program->calls[i].in[j];
            struct cuda_args args;
            cn_err err;

            if (operand->arena != CN_ARENA_BATCH || !operand->stride || seen_before(program, i, j))
                continue;
            cuda_args_of(cuda, &program->calls[i], &args);
            args.in[0] = args.in[j];
            args.call.fill = (struct cn_fill){.count = operand->stride};
            err = cuda_launch_threads(cuda, CUDA_KERNEL_repeat, &args,
                                      (uint64_t)operand->stride * cuda->samples);
            if (err)
                return err;
        }
    return CN_OK;
}

// Queues the next call, or the next two as one.
static cn_err queue_next(struct cuda *cuda, const struct cn_compute_program *program, bool clipped,
                         size_t *next)
{
    const struct cn_call *call = &program->calls[(*next)++];
    cn_err err = *next < program->count ? cuda_products_pair(cuda, call, call + 1) : CN_ENOTSUP;

    if (err == CN_ENOTSUP)
        return cuda_lower(cuda, call, clipped);
    ++*next;
    return err;
}

// Queues the whole program.
static cn_err queue(struct cuda *cuda, const struct cn_compute_program *program)
{
    struct cn_call none = {.op = CN_OP_CHECK};
    struct cuda_args args;
    bool clipped = false;
    cn_err err;

    cuda_args_of(cuda, &none, &args);
    err = is_flat(program) ? cuda_launch_blocks(cuda, CUDA_KERNEL_begin_flat, &args, 1)
                           : repeat_samples(cuda, program);
    for (size_t i = 0; i < program->count && !err;) {
        bool clips = program->calls[i].op == CN_OP_CLIP;

        err = queue_next(cuda, program, clipped, &i);
        clipped = clipped || clips;
    }
    return err;
}

// Captures the program as a CUDA graph, so that a run is one launch. If the device cannot capture
// some call of it, the program runs call by call.
static cn_err capture(struct cuda *cuda, struct cn_compute_program *program)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    CUgraph graph = NULL;
    CUresult result;
    cn_err err;

    // Relaxed, because libraries load their kernels when they first use them.
    result = driver->capture_begin(cuda->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result)
        return cuda_check(cuda, result, "cuStreamBeginCapture");
    err = queue(cuda, program);
    result = driver->capture_end(cuda->stream, &graph);
    if (!err && !result)
        result = driver->graph_prepare(&program->graph, graph, 0);
    if (graph)
        driver->graph_destroy(graph);
    if (err == CN_ENOTSUP || err == CN_ENOMEM)
        return err;
    if (err || result) {
        program->graph = NULL;
        cn_log(CN_LOG_WARN, "cuda", "a program is not captured (%d); it runs call by call",
               (int)result);
    }
    return CN_OK;
}

static void note_flat_writes(const struct cn_call *call, bool writes[CN_ARENA_COUNT])
{
    if (call->op == CN_OP_SUM_LANES)
        writes[CN_ARENA_GRADIENTS] = true;
    if (call->op < CN_OP_SGD)
        return;
    writes[call->range.own ? CN_ARENA_OWN : CN_ARENA_WEIGHTS] = true;
    writes[CN_ARENA_OPTIMIZER] = writes[CN_ARENA_OPTIMIZER] || call->op != CN_OP_STATISTIC;
    writes[CN_ARENA_SECOND] = writes[CN_ARENA_SECOND] || call->op == CN_OP_ADAM;
}

// Notes which arenas the program writes, so that map knows what to copy.
static void note_writes(struct cn_compute_program *program)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct cn_call *call = &program->calls[i];

        if (call->op >= CN_OP_BATCH_COUNT)
            note_flat_writes(call, program->writes);
        for (int j = 0; j < CN_CALL_OUTPUTS && call->op < CN_OP_BATCH_COUNT; j++)
            program->writes[call->out[j].arena] = true;
    }
}

static void cuda_release(struct cn_compute *device, struct cn_compute_program *program)
{
    struct cuda *cuda = cuda_of(device);

    if (!program)
        return;
    if (program->graph) {
        // Queued work may still use the graph. Errors of that work come from wait.
        if (!enter(cuda) && cuda->library.driver.stream_wait(cuda->stream))
            cn_log(CN_LOG_WARN, "cuda", "a program was released after an error of the device");
        cuda->library.driver.prepared_destroy(program->graph);
    }
    free(program);
}

static cn_err cuda_prepare(struct cn_compute *device, const struct cn_call *calls, size_t count,
                           struct cn_compute_program **prepared)
{
    struct cuda *cuda = cuda_of(device);
    struct cn_compute_program *program;
    size_t size;
    cn_err err = enter(cuda);

    if (err)
        return err;
    if (__builtin_mul_overflow(count, sizeof(*calls), &size) ||
        __builtin_add_overflow(size, sizeof(*program), &size))
        return CN_ENOMEM;
    program = calloc(1, size);
    if (!program)
        return CN_ENOMEM;
    program->count = count;
    if (count)
        memcpy(program->calls, calls, count * sizeof(*calls));
    note_writes(program);
    if (count)
        err = capture(cuda, program);
    if (err) {
        cuda_release(device, program);
        return err;
    }
    *prepared = program;
    return CN_OK;
}

static cn_err cuda_run(struct cn_compute *device, struct cn_compute_program *program,
                       const struct cn_hyper *hyper)
{
    struct cuda *cuda = cuda_of(device);
    struct cn_call none = {.op = CN_OP_CHECK};
    struct cuda_args args;
    cn_err err;

    assert(hyper->samples <= cuda->samples || is_flat(program));
    if (!program->count)
        return CN_OK;
    err = enter(cuda);
    if (err)
        return err;
    cuda_args_of(cuda, &none, &args);
    args.next = *hyper;
    if (cuda->precision != CN_PRECISION_FLOAT16)
        args.next.loss_scale = (struct cn_loss_scale){0};
    err = cuda_launch_blocks(cuda, CUDA_KERNEL_begin, &args, 1);
    if (!err)
        err =
            program->graph
                ? cuda_check(cuda, cuda->library.driver.graph_launch(program->graph, cuda->stream),
                             "cuGraphLaunch")
                : queue(cuda, program);
    for (int i = 0; i < CN_ARENA_COUNT; i++)
        cuda->arenas[i].stale = cuda->arenas[i].stale || program->writes[i];
    if (err && !cuda->failed)
        cuda->failed = err;
    return err;
}

static cn_err read_result(struct cuda *cuda)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    struct cn_call none = {.op = CN_OP_CHECK};
    struct cuda_args args;
    cn_err err = cuda_check(
        cuda, driver->copy_out(cuda->result, cuda->state, sizeof(*cuda->result), cuda->stream),
        "cuMemcpyDtoHAsync");

    cuda_args_of(cuda, &none, &args);
    if (!err)
        err = cuda_launch_blocks(cuda, CUDA_KERNEL_reset, &args, 1);
    return err ? err : cuda_check(cuda, driver->stream_wait(cuda->stream), "cuStreamSynchronize");
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
