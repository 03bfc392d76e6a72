#include "ports/cpu/compute_cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cpu/flat.h"
#include "ports/cpu/isa.h"
#include "ports/cpu/kernel.h"
#include "ports/cpu/lanes.h"

#define ALIGNMENT 64 // bytes: a cache line
#define LINE_WORDS 16

struct cn_compute_program {
    size_t count;
    struct cn_call calls[];
};

// What a lane adds up, on a cache line of its own.
struct lane_result {
    struct cn_compute_result result;
    cn_err err;
} __attribute__((aligned(ALIGNMENT)));

struct cpu {
    struct cn_compute base;
    const struct cpu_kernels *kernels;
    struct cpu_lanes *threads;
    uint32_t lanes;
    float *arena[CN_ARENA_COUNT];      // owned
    size_t words[CN_ARENA_COUNT];      // as planned
    size_t lane_words[CN_ARENA_COUNT]; // from one lane's to the next's; 0 for what they share
    struct lane_result *results;       // owned
    bool diverged;

    // The current run, read by all lanes.
    const struct cn_compute_program *program;
    const struct cn_call *call;
    const struct cn_hyper *hyper;
};

static struct cpu *cpu_of(struct cn_compute *device)
{
    return (struct cpu *)device;
}

static void cpu_close(struct cn_compute *device)
{
    struct cpu *cpu = cpu_of(device);

    if (!cpu)
        return;
    cpu_lanes_close(cpu->threads);
    for (int i = 0; i < CN_ARENA_COUNT; i++)
        free(cpu->arena[i]);
    free(cpu->results);
    free(cpu);
}

static cn_err cpu_open(const struct cn_compute_config *config, struct cn_compute **device)
{
    const struct cpu_kernels *kernels;
    struct cpu *cpu;
    cn_err err;

    if (!config->threads || config->threads > 1024)
        return CN_EINVAL;
    kernels = cpu_isa_choose();
    if (!kernels)
        return CN_ENOTSUP;
    cpu = calloc(1, sizeof(*cpu));
    if (!cpu)
        return CN_ENOMEM;
    cpu->base.ops = &cn_compute_cpu;
    cpu->kernels = kernels;
    cpu->lanes = config->threads;
    cpu->results = aligned_alloc(ALIGNMENT, cpu->lanes * sizeof(*cpu->results));
    err = cpu->results ? cpu_lanes_open(cpu->lanes, &cpu->threads) : CN_ENOMEM;
    if (err) {
        cpu_close(&cpu->base);
        return err;
    }
    memset(cpu->results, 0, cpu->lanes * sizeof(*cpu->results));
    *device = &cpu->base;
    return CN_OK;
}

static uint32_t cpu_lanes_count(const struct cn_compute *device)
{
    return ((const struct cpu *)device)->lanes;
}

// Kernels keep offsets within a sample in 32 bits.
static bool window_fits(const struct cn_window *w)
{
    size_t limit = INT32_MAX;
    size_t rows = ((size_t)w->in[0] + w->pad[0] + w->out[0]) +
                  2 * ((size_t)w->kernel[0] * w->dilation[0] + w->stride[0]);
    size_t cols = ((size_t)w->in[1] + w->pad[1] + w->out[1]) +
                  2 * ((size_t)w->kernel[1] * w->dilation[1] + w->stride[1]);
    size_t words;

    if (__builtin_mul_overflow(rows, cols, &words))
        return false;
    if (__builtin_mul_overflow(words, (size_t)w->channels_in + w->channels_out, &words))
        return false;
    if (__builtin_mul_overflow(words, (size_t)w->stride[0] * w->stride[1], &words))
        return false;
    return words < limit && (size_t)w->channels_in * w->channels_out / w->groups <
                                limit / w->kernel[0] / w->kernel[1];
}

static cn_err cpu_query(const struct cn_compute *device, const struct cn_call *call, size_t samples,
                        size_t *workspace)
{
    const struct cpu *cpu = (const struct cpu *)device;
    const struct cpu_kernel *kernel;

    *workspace = 0;
    if (call->op >= CN_OP_BATCH_COUNT)
        return CN_OK;
    if (call->op >= CN_OP_CONV && call->op <= CN_OP_AVERAGE_POOL_GRAD &&
        call->op != CN_OP_BIAS_GRAD && !window_fits(&call->window))
        return CN_ENOTSUP;
    kernel = &cpu->kernels->ops[call->op];
    if (!kernel->run)
        return CN_ENOTSUP;
    if (kernel->workspace)
        *workspace = kernel->workspace(call, samples);
    return CN_OK;
}

static bool per_lane(enum cn_arena arena)
{
    return arena == CN_ARENA_GRADIENTS || arena == CN_ARENA_ACTIVATIONS;
}

static cn_err cpu_reserve(struct cn_compute *device, const struct cn_compute_sizes *sizes,
                          uint32_t samples)
{
    struct cpu *cpu = cpu_of(device);

    (void)samples;
    for (int i = 1; i < CN_ARENA_COUNT; i++) {
        size_t words = (sizes->words[i] + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
        size_t bytes;

        assert(!cpu->arena[i]);
        cpu->words[i] = sizes->words[i];
        cpu->lane_words[i] = per_lane((enum cn_arena)i) ? words : 0;
        if (words < sizes->words[i] ||
            __builtin_mul_overflow(words, per_lane((enum cn_arena)i) ? cpu->lanes : 1, &bytes) ||
            __builtin_add_overflow(bytes, CPU_SLACK, &bytes) ||
            __builtin_mul_overflow(bytes, sizeof(float), &bytes))
            return CN_ENOMEM;
        cpu->arena[i] = aligned_alloc(ALIGNMENT, bytes);
        if (!cpu->arena[i])
            return CN_ENOMEM;
        memset(cpu->arena[i], 0, bytes);
    }
    return CN_OK;
}

static cn_err cpu_prepare(struct cn_compute *device, const struct cn_call *calls, size_t count,
                          struct cn_compute_program **prepared)
{
    struct cn_compute_program *program;
    size_t size;

    (void)device;
    if (__builtin_mul_overflow(count, sizeof(*calls), &size) ||
        __builtin_add_overflow(size, sizeof(*program), &size))
        return CN_ENOMEM;
    program = malloc(size);
    if (!program)
        return CN_ENOMEM;
    program->count = count;
    if (count)
        memcpy(program->calls, calls, count * sizeof(*calls));
    *prepared = program;
    return CN_OK;
}

static void cpu_release(struct cn_compute *device, struct cn_compute_program *program)
{
    (void)device;
    free(program);
}

static float *place(const struct cpu *cpu, const struct cn_operand *operand, uint32_t lane,
                    size_t first)
{
    if (operand->arena == CN_ARENA_NONE)
        return NULL;
    // Activations start at the lane's first sample, the batch at the first of all.
    if (operand->arena == CN_ARENA_ACTIVATIONS)
        first = 0;
    return cpu->arena[operand->arena] + lane * cpu->lane_words[operand->arena] + operand->offset +
           first * operand->stride;
}

// The first of this lane's shares of count things; the next lane's first is its end.
static size_t share(size_t count, uint32_t lane, uint32_t lanes)
{
    return count / lanes * lane + count % lanes * lane / lanes;
}

// True when the call is the same for every sample.
static bool is_shared(const struct cn_call *call)
{
    size_t strides = 0;

    for (int i = 0; i < CN_CALL_INPUTS; i++)
        strides |= call->in[i].stride;
    for (int i = 0; i < CN_CALL_OUTPUTS; i++)
        strides |= call->out[i].stride;
    return !strides;
}

static void run_batch_lane(void *context, uint32_t lane)
{
    const struct cpu *cpu = context;
    size_t first = share(cpu->hyper->samples, lane, cpu->lanes);
    size_t samples = share(cpu->hyper->samples, lane + 1, cpu->lanes) - first;
    struct cpu_task task = {
        .result = &cpu->results[lane].result,
        .err = &cpu->results[lane].err,
    };

    for (size_t i = 0; i < cpu->program->count; i++) {
        const struct cn_call *call = &cpu->program->calls[i];

        task.call = call;
        task.samples = is_shared(call) ? 1 : samples;
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            task.in[j] = place(cpu, &call->in[j], lane, first);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            task.out[j] = place(cpu, &call->out[j], lane, first);
        task.workspace = place(cpu, &call->workspace, lane, 0);
        task.add =
            call->write == CN_WRITE_ADD || (call->write == CN_WRITE_STEP && !cpu->hyper->first);
        cpu->kernels->ops[call->op].run(&task);
    }
}

// A lane's range of the words of an arena.
static size_t range_of(const struct cpu *cpu, enum cn_arena arena, uint32_t lane, size_t *first)
{
    *first = share(cpu->words[arena], lane, cpu->lanes);
    return share(cpu->words[arena], lane + 1, cpu->lanes) - *first;
}

static void sum_lanes_lane(void *context, uint32_t lane)
{
    struct cpu *cpu = context;
    size_t first;
    size_t count = range_of(cpu, CN_ARENA_GRADIENTS, lane, &first);
    float *total = cpu->arena[CN_ARENA_GRADIENTS] + first;

    for (uint32_t i = 1; i < cpu->lanes; i++)
        cpu_flat_add(total, total + i * cpu->lane_words[CN_ARENA_GRADIENTS], count);
}

static void check_lane(void *context, uint32_t lane)
{
    struct cpu *cpu = context;
    size_t first;
    size_t count = range_of(cpu, CN_ARENA_GRADIENTS, lane, &first);

    cpu->results[lane].result.finite =
        cpu_flat_finite(cpu->arena[CN_ARENA_GRADIENTS] + first, count);
}

static void sgd_lane(void *context, uint32_t lane)
{
    struct cpu *cpu = context;
    size_t first;
    size_t count = range_of(cpu, CN_ARENA_GRADIENTS, lane, &first);

    cpu_flat_sgd(cpu->hyper, cpu->arena[CN_ARENA_GRADIENTS] + first,
                 cpu->arena[CN_ARENA_WEIGHTS] + first, cpu->arena[CN_ARENA_OPTIMIZER] + first,
                 count);
}

static void run_sgd(struct cpu *cpu)
{
    bool finite = true;

    cpu_lanes_run(cpu->threads, check_lane, cpu);
    for (uint32_t i = 0; i < cpu->lanes; i++)
        finite = finite && cpu->results[i].result.finite;
    if (finite)
        cpu_lanes_run(cpu->threads, sgd_lane, cpu);
    else
        cpu->diverged = true;
}

static void run_flat(struct cpu *cpu)
{
    for (size_t i = 0; i < cpu->program->count; i++)
        switch (cpu->program->calls[i].op) {
        case CN_OP_SUM_LANES:
            cpu_lanes_run(cpu->threads, sum_lanes_lane, cpu);
            break;
        case CN_OP_SGD:
            run_sgd(cpu);
            break;
        default:
            assert(false); // a batch call in a flat program
        }
}

static cn_err cpu_run(struct cn_compute *device, struct cn_compute_program *program,
                      const struct cn_hyper *hyper)
{
    struct cpu *cpu = cpu_of(device);

    if (!program->count)
        return CN_OK;
    cpu->program = program;
    cpu->hyper = hyper;
    if (program->calls[0].op < CN_OP_BATCH_COUNT)
        cpu_lanes_run(cpu->threads, run_batch_lane, cpu);
    else
        run_flat(cpu);
    return CN_OK;
}

static cn_err cpu_wait(struct cn_compute *device, struct cn_compute_result *result)
{
    struct cpu *cpu = cpu_of(device);
    cn_err err = CN_OK;

    *result = (struct cn_compute_result){.finite = !cpu->diverged};
    for (uint32_t i = 0; i < cpu->lanes; i++) {
        result->loss += cpu->results[i].result.loss;
        result->correct += cpu->results[i].result.correct;
        err = err ? err : cpu->results[i].err;
        cpu->results[i] = (struct lane_result){0};
    }
    cpu->diverged = false;
    return err;
}

static cn_err cpu_map_arena(struct cn_compute *device, enum cn_arena arena, void **host)
{
    assert(arena != CN_ARENA_ACTIVATIONS);
    *host = cpu_of(device)->arena[arena];
    return CN_OK;
}

static cn_err cpu_unmap(struct cn_compute *device, enum cn_arena arena)
{
    (void)device;
    (void)arena;
    return CN_OK;
}

const struct cn_compute_ops cn_compute_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .lanes = cpu_lanes_count,
    .query = cpu_query,
    .reserve = cpu_reserve,
    .prepare = cpu_prepare,
    .release = cpu_release,
    .run = cpu_run,
    .wait = cpu_wait,
    .map = cpu_map_arena,
    .unmap = cpu_unmap,
};
