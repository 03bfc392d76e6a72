#include "ports/cpu/compute_cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cpu/flat_program.h"
#include "ports/cpu/isa.h"
#include "ports/cpu/kernel.h"
#include "ports/cpu/lanes.h"
#include "ports/cpu/pages.h"

#define ALIGNMENT 64            // bytes: a cache line
#define LINE_WORDS 16           // words of a cache line
#define LARGE ((size_t)4 << 20) // bytes from which an arena is mapped in pages of its own
#define PAGE ((size_t)64 << 10) // bytes; a multiple of the page size of every system

struct cn_compute_program {
    size_t count;
    double *sums; // owned: room for the sums of flat calls; NULL for none
    struct cn_call calls[];
};

// The results of a lane, on a cache line of its own.
struct lane_result {
    struct cn_compute_result result;
    cn_err err;
} __attribute__((aligned(ALIGNMENT)));

struct cpu {
    struct cn_compute base;
    const struct cpu_kernels *kernels;
    struct cpu_lanes *threads;
    uint32_t lanes;
    float *arena[CN_ARENA_COUNT];  // owned
    size_t mapped[CN_ARENA_COUNT]; // bytes of a mapped arena; 0 if it is from the heap
    size_t words[CN_ARENA_COUNT];  // words asked for in reserve
    // Words from one lane's part to the next one's; 0 if the lanes share it.
    size_t lane_words[CN_ARENA_COUNT];
    struct cpu_pages pages;        // takes the pages of mapped arenas ahead
    struct lane_result *results;   // owned
    struct cn_compute_result flat; // results of flat calls
    double *shown;                 // owned; two buffers, used in turn, of values that lanes share
    size_t shown_stride;           // doubles from one lane's part to the next one's

    // The current run, which all lanes read.
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
    cpu_pages_stop(&cpu->pages);
    for (int i = 0; i < CN_ARENA_COUNT; i++)
        if (cpu->arena[i] && cpu->mapped[i])
            cpu_pages_unmap(cpu->arena[i], cpu->mapped[i]);
        else
            free(cpu->arena[i]);
    free(cpu->results);
    free(cpu->shown);
    free(cpu);
}

static cn_err cpu_open(const struct cn_compute_config *config, struct cn_compute **device)
{
    const struct cpu_kernels *kernels;
    struct cpu *cpu;
    cn_err err;

    if (!config->threads || config->threads > 1024)
        return CN_EINVAL;
    if (config->precision != CN_PRECISION_FLOAT32)
        return CN_ENOTSUP;
    kernels = cpu_isa_choose();
    if (!kernels)
        return CN_ENOTSUP;
    cpu = calloc(1, sizeof(*cpu));
    if (!cpu)
        return CN_ENOMEM;
    cpu->base.ops = &cn_compute_cpu;
    cpu->base.host_memory = true;
    cpu->kernels = kernels;
    cpu->lanes = config->threads;
    cpu->flat.finite = true;
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

// Returns whether a window is small enough: kernels keep in 32 bits the offsets of taps in the
// planes of plane.h, and the numbers of elements in a sample. Computes in floating point, so that
// nothing wraps.
static bool window_fits(const struct cn_window *w)
{
    double limit = INT32_MAX, plane = 1, kernel = 1, phases = 1, channels;

    for (int axis = 0; axis < 2; axis++) {
        double reach = (double)w->kernel[axis] * w->dilation[axis];
        double padded = 2 * ((double)w->in[axis] + w->pad[axis]);

        plane *= (padded + reach) / w->stride[axis] + w->out[axis] + 2;
        kernel *= w->kernel[axis];
        phases *= w->stride[axis];
    }
    channels = w->channels_in > w->channels_out ? w->channels_in : w->channels_out;
    // A phase also has slack, and several samples may share small planes; 1024 words cover both.
    return channels / w->groups * phases * (plane + 1024) < limit &&
           (double)w->channels_in * w->in[0] * w->in[1] < limit &&
           (double)w->channels_out * w->out[0] * w->out[1] < limit &&
           (double)w->channels_in * w->channels_out / w->groups * kernel < limit;
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

// Returns whether each lane has a part of its own in the arena.
static bool per_lane(enum cn_arena arena)
{
    return arena == CN_ARENA_GRADIENTS || arena == CN_ARENA_ACTIVATIONS;
}

// Allocates zeroed memory. Large blocks are mapped; *mapped is their size, else 0.
static void *allocate(size_t size, size_t *mapped)
{
    bool large = size >= LARGE;
    size_t alignment = large ? PAGE : ALIGNMENT, whole;
    void *words;

    *mapped = 0;
    if (__builtin_add_overflow(size, alignment - 1, &whole) || whole > SIZE_MAX - LARGE)
        return NULL;
    whole -= whole % alignment;
    if (large) {
        *mapped = whole;
        return cpu_pages_map(whole);
    }
    words = aligned_alloc(alignment, whole);
    if (words)
        memset(words, 0, size);
    return words;
}

// Lets a thread take the pages ahead, in the order of their use. Until the first run the file of
// the weights is in memory too, so the thread leaves that much untaken. With the weights of others
// (CN_ARENA_OWN), more than the plan is in memory while they are read, so no page is taken ahead.
static void take_pages(struct cpu *cpu)
{
    static const enum cn_arena order[] = {CN_ARENA_WEIGHTS, CN_ARENA_ACTIVATIONS,
                                          CN_ARENA_GRADIENTS, CN_ARENA_OPTIMIZER, CN_ARENA_SECOND};
    size_t total = 0, file = cpu->mapped[CN_ARENA_WEIGHTS];

    for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++)
        if (cpu->mapped[order[i]]) {
            cpu_pages_add(&cpu->pages, cpu->arena[order[i]], cpu->mapped[order[i]]);
            total += cpu->mapped[order[i]];
        }
    if (total > file && !cpu->words[CN_ARENA_OWN])
        cpu_pages_start(&cpu->pages, total - file);
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
        cpu->arena[i] = allocate(bytes, &cpu->mapped[i]);
        if (!cpu->arena[i])
            return CN_ENOMEM;
    }
    take_pages(cpu);
    return CN_OK;
}

// Allocates room for the values that the lanes share in these calls.
static cn_err reserve_shown(struct cpu *cpu, const struct cn_call *calls, size_t count)
{
    size_t largest = 0, stride, bytes;
    double *shown;

    for (size_t i = 0; i < count; i++) {
        const struct cpu_kernel *kernel;
        size_t words;

        if (calls[i].op >= CN_OP_BATCH_COUNT)
            continue; // flat calls have no kernels
        kernel = &cpu->kernels->ops[calls[i].op];
        words = kernel->shown ? kernel->shown(&calls[i]) : 0;
        largest = words > largest ? words : largest;
    }
    stride = (largest + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
    if (stride <= cpu->shown_stride)
        return CN_OK;
    if (stride < largest || __builtin_mul_overflow(stride, 2 * (size_t)cpu->lanes, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(*shown), &bytes))
        return CN_ENOMEM;
    shown = aligned_alloc(ALIGNMENT, bytes);
    if (!shown)
        return CN_ENOMEM;
    free(cpu->shown);
    cpu->shown = shown;
    cpu->shown_stride = stride;
    return CN_OK;
}

static cn_err cpu_prepare(struct cn_compute *device, const struct cn_call *calls, size_t count,
                          struct cn_compute_program **prepared)
{
    struct cn_compute_program *program;
    size_t size, sums;

    if (reserve_shown(cpu_of(device), calls, count))
        return CN_ENOMEM;
    if (__builtin_mul_overflow(count, sizeof(*calls), &size) ||
        __builtin_add_overflow(size, sizeof(*program), &size))
        return CN_ENOMEM;
    program = malloc(size);
    if (!program)
        return CN_ENOMEM;
    program->count = count;
    program->sums = NULL;
    if (count)
        memcpy(program->calls, calls, count * sizeof(*calls));
    sums = cpu_flat_program_sums(calls, count);
    if (sums) {
        program->sums = calloc(sums, sizeof(*program->sums));
        if (!program->sums) {
            free(program);
            return CN_ENOMEM;
        }
    }
    *prepared = program;
    return CN_OK;
}

static void cpu_release(struct cn_compute *device, struct cn_compute_program *program)
{
    (void)device;
    if (program)
        free(program->sums);
    free(program);
}

// Returns the address of an operand for a lane; first is the number of the lane's first sample in
// the batch.
static float *place(const struct cpu *cpu, const struct cn_operand *operand, uint32_t lane,
                    size_t first)
{
    if (operand->arena == CN_ARENA_NONE)
        return NULL;
    // Activations begin with the lane's first sample, the batch begins with the first sample of
    // all.
    if (operand->arena == CN_ARENA_ACTIVATIONS)
        first = 0;
    return cpu->arena[operand->arena] + lane * cpu->lane_words[operand->arena] + operand->offset +
           first * operand->stride;
}

// Returns the first of a lane's share of count things. The next lane's first is its end.
static size_t share(size_t count, uint32_t lane, uint32_t lanes)
{
    return count / lanes * lane + count % lanes * lane / lanes;
}

// Returns whether the call is the same for every sample.
static bool is_shared(const struct cn_call *call)
{
    size_t strides = 0;

    for (int i = 0; i < CN_CALL_INPUTS; i++)
        strides |= call->in[i].stride;
    for (int i = 0; i < CN_CALL_OUTPUTS; i++)
        strides |= call->out[i].stride;
    return !strides;
}

// Runs all calls of the program on one lane's samples.
static void run_batch_lane(void *context, uint32_t lane)
{
    const struct cpu *cpu = context;
    size_t first = share(cpu->hyper->samples, lane, cpu->lanes);
    size_t samples = share(cpu->hyper->samples, lane + 1, cpu->lanes) - first;
    struct cpu_task task = {
        .hyper = cpu->hyper,
        .first = first,
        .result = &cpu->results[lane].result,
        .err = &cpu->results[lane].err,
        .threads = cpu->threads,
        .lane = lane,
        .lanes = cpu->lanes,
        .shown_stride = cpu->shown_stride,
    };
    unsigned meetings = 0;

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
        // Two buffers are enough: a lane that has left one meeting may write for the next while
        // another lane still reads, but it cannot be two meetings ahead.
        if (cpu->kernels->ops[call->op].shown && cpu->shown)
            task.shown = cpu->shown + meetings++ % 2 * cpu->lanes * cpu->shown_stride;
        cpu->kernels->ops[call->op].run(&task);
    }
}

static void run_flat(struct cpu *cpu, const struct cn_compute_program *program)
{
    struct cpu_flat_arenas arenas = {
        .gradients = cpu->arena[CN_ARENA_GRADIENTS],
        .weights = cpu->arena[CN_ARENA_WEIGHTS],
        .first = cpu->arena[CN_ARENA_OPTIMIZER],
        .second = cpu->arena[CN_ARENA_SECOND],
        .base = cpu->arena[CN_ARENA_BASE],
        .share = cpu->arena[CN_ARENA_SHARE],
        .own = cpu->arena[CN_ARENA_OWN],
        .gradient_words = cpu->words[CN_ARENA_GRADIENTS],
        .lane_words = cpu->lane_words[CN_ARENA_GRADIENTS],
        .lanes = cpu->lanes,
    };

    cpu_flat_program_run(cpu->threads, &arenas, program->calls, program->count, cpu->hyper,
                         program->sums, &cpu->flat);
}

static cn_err cpu_run(struct cn_compute *device, struct cn_compute_program *program,
                      const struct cn_hyper *hyper)
{
    struct cpu *cpu = cpu_of(device);

    if (!program->count)
        return CN_OK;
    cpu_pages_run(&cpu->pages, cpu->lanes);
    cpu->program = program;
    cpu->hyper = hyper;
    if (program->calls[0].op < CN_OP_BATCH_COUNT)
        cpu_lanes_run(cpu->threads, run_batch_lane, cpu);
    else
        run_flat(cpu, program);
    return CN_OK;
}

static cn_err cpu_wait(struct cn_compute *device, struct cn_compute_result *result)
{
    struct cpu *cpu = cpu_of(device);
    cn_err err = CN_OK;

    *result = cpu->flat;
    for (uint32_t i = 0; i < cpu->lanes; i++) {
        result->loss += cpu->results[i].result.loss;
        result->weight += cpu->results[i].result.weight;
        result->correct += cpu->results[i].result.correct;
        err = err ? err : cpu->results[i].err;
        cpu->results[i] = (struct lane_result){0};
    }
    cpu->flat = (struct cn_compute_result){.finite = true};
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

// Returns at once: a run is over when cpu_run returns.
static cn_err cpu_show(struct cn_compute *device, enum cn_arena arena, size_t first, size_t count,
                       void **host)
{
    (void)count;
    *host = cpu_of(device)->arena[arena] + first;
    return CN_OK;
}

static cn_err cpu_shown(struct cn_compute *device, bool wait)
{
    (void)device;
    (void)wait;
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
    .show = cpu_show,
    .shown = cpu_shown,
};
