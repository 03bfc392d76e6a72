#include "ports/cuda/cuda_program.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/products.h"
#include "ports/cuda/updates.h"
#include "runtime/base/log.h"

// Graphs of a program: of a step's first batch, and of its later batches, which add to gradients
// that the first one sets. A program that is the same in both has the first graph only.
enum { FIRST, LATER, GRAPHS };

// How a program runs.
enum way {
    BY_GRAPH,
    COLD,   // call by call, then captured again: a library's first call may not be capturable
    BY_CALL // call by call for good
};

struct cn_compute_program {
    CUgraphExec graphs[GRAPHS]; // NULL: not captured
    enum way way;
    bool steps;                  // a call has CN_WRITE_STEP
    bool empty;                  // nothing is to be done
    bool writes[CN_ARENA_COUNT]; // arenas that the program writes
    CUdeviceptr ranges;          // the optimizer's, see updates.h; 0: none
    size_t count;
    struct cn_call calls[];
};

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

// Queues the next call, or several that are done as one.
static cn_err queue_next(struct cuda *cuda, const struct cn_compute_program *program, bool clipped,
                         size_t *next)
{
    const struct cn_call *call = &program->calls[*next];
    cn_err err;

    if (cuda_is_update(call))
        return cuda_updates_queue(cuda, program->calls, program->count, program->ranges, clipped,
                                  next);
    ++*next;
    err = *next < program->count ? cuda_products_pair(cuda, call, call + 1) : CN_ENOTSUP;
    if (err == CN_ENOTSUP)
        return cuda_lower(cuda, call, clipped);
    ++*next;
    return err;
}

// Queues the whole program.
static cn_err queue(struct cuda *cuda, const struct cn_compute_program *program)
{
    bool clipped = false;
    cn_err err = is_flat(program) ? CN_OK : repeat_samples(cuda, program);

    for (size_t i = 0; i < program->count && !err;) {
        bool clips = program->calls[i].op == CN_OP_CLIP;

        err = queue_next(cuda, program, clipped, &i);
        clipped = clipped || clips;
    }
    return err;
}

// Captures the program's work for a first or a later batch of a step as a CUDA graph, so that a run
// is one launch. CN_EAGAIN when the device could not capture some call.
static cn_err capture(struct cuda *cuda, struct cn_compute_program *program, int which)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    CUgraph graph = NULL;
    CUresult result;
    cn_err err;

    // Relaxed, because libraries load their kernels when they first use them.
    result = driver->capture_begin(cuda->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result)
        return cuda_check(cuda, result, "cuStreamBeginCapture");
    cuda->first = which == FIRST;
    err = queue(cuda, program);
    result = driver->capture_end(cuda->stream, &graph);
    if (!err && !result)
        result = driver->graph_prepare(&program->graphs[which], graph, 0);
    if (graph)
        driver->graph_destroy(graph);
    if (err == CN_ENOTSUP || err == CN_ENOMEM)
        return err;
    if (!err && !result)
        return CN_OK;
    program->graphs[which] = NULL;
    cn_log(CN_LOG_INFO, "cuda", "a program is not captured (%d)", (int)result);
    return CN_EAGAIN;
}

static void destroy_graphs(struct cuda *cuda, struct cn_compute_program *program)
{
    for (int which = 0; which < GRAPHS; which++)
        if (program->graphs[which])
            cuda->library.driver.prepared_destroy(program->graphs[which]);
    memset(program->graphs, 0, sizeof(program->graphs));
}

// Captures the graphs of the program. CN_EAGAIN when not all of them could be captured; then the
// program has none.
static cn_err capture_all(struct cuda *cuda, struct cn_compute_program *program)
{
    cn_err err = CN_OK;

    for (int which = FIRST; which < (program->steps ? GRAPHS : LATER) && !err; which++)
        err = capture(cuda, program, which);
    if (err)
        destroy_graphs(cuda, program);
    return err;
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

// Notes which arenas the program writes, so that map knows what to copy, and whether its batches
// differ.
static void note_writes(struct cn_compute_program *program)
{
    for (size_t i = 0; i < program->count; i++) {
        const struct cn_call *call = &program->calls[i];

        program->steps = program->steps || call->write == CN_WRITE_STEP;
        if (call->op >= CN_OP_BATCH_COUNT)
            note_flat_writes(call, program->writes);
        for (int j = 0; j < CN_CALL_OUTPUTS && call->op < CN_OP_BATCH_COUNT; j++)
            program->writes[call->out[j].arena] = true;
    }
}

// Returns whether no call does anything: with one lane there is nothing to sum.
static bool is_empty(const struct cuda *cuda, const struct cn_compute_program *program)
{
    for (size_t i = 0; i < program->count; i++)
        if (program->calls[i].op != CN_OP_SUM_LANES || cuda->precision == CN_PRECISION_FLOAT16)
            return false;
    return true;
}

void cuda_program_release(struct cuda *cuda, struct cn_compute_program *program)
{
    if (!program)
        return;
    if (program->graphs[FIRST] || program->ranges) {
        // Queued work may still use them. Errors of that work come from wait.
        if (cuda->library.driver.stream_wait(cuda->stream))
            cn_log(CN_LOG_WARN, "cuda", "a program was released after an error of the device");
        destroy_graphs(cuda, program);
    }
    if (program->ranges)
        cuda->library.driver.release(program->ranges);
    free(program);
}

cn_err cuda_program_prepare(struct cuda *cuda, const struct cn_call *calls, size_t count,
                            struct cn_compute_program **prepared)
{
    struct cn_compute_program *program;
    size_t size;
    cn_err err = CN_OK;

    if (__builtin_mul_overflow(count, sizeof(*calls), &size) ||
        __builtin_add_overflow(size, sizeof(*program), &size))
        return CN_ENOMEM;
    program = calloc(1, size);
    if (!program)
        return CN_ENOMEM;
    program->count = count;
    if (count)
        memcpy(program->calls, calls, count * sizeof(*calls));
    cuda_updates_sort(program->calls, count);
    note_writes(program);
    program->empty = is_empty(cuda, program);
    err = cuda_updates_make_table(cuda, program->calls, count, &program->ranges);
    if (!err && !program->empty)
        err = capture_all(cuda, program);
    if (err == CN_EAGAIN) {
        program->way = COLD;
        err = CN_OK;
    }
    if (err) {
        cuda_program_release(cuda, program);
        return err;
    }
    *prepared = program;
    return CN_OK;
}

// Queues the work of a run behind its hyper-parameters.
static cn_err queue_run(struct cuda *cuda, struct cn_compute_program *program, bool first)
{
    CUgraphExec graph = program->graphs[first || !program->steps ? FIRST : LATER];

    if (program->way == BY_GRAPH)
        return cuda_check(cuda, cuda->library.driver.graph_launch(graph, cuda->stream),
                          "cuGraphLaunch");
    cuda->first = first;
    return queue(cuda, program);
}

// Captures a program again after it has run call by call, as the libraries have loaded their
// kernels by then.
static void warm_up(struct cuda *cuda, struct cn_compute_program *program)
{
    program->way = capture_all(cuda, program) ? BY_CALL : BY_GRAPH;
    if (program->way == BY_CALL)
        cn_log(CN_LOG_WARN, "cuda", "a program cannot be captured; it runs call by call");
}

cn_err cuda_program_run(struct cuda *cuda, struct cn_compute_program *program,
                        const struct cn_hyper *hyper)
{
    struct cn_call none = {.op = CN_OP_CHECK};
    struct cuda_args args;
    cn_err err;

    assert(hyper->samples <= cuda->samples || is_flat(program));
    if (program->empty)
        return CN_OK;
    cuda_args_of(cuda, &none, &args);
    args.flat = is_flat(program);
    args.read = cuda->read;
    args.next = *hyper;
    if (cuda->precision != CN_PRECISION_FLOAT16)
        args.next.loss_scale = (struct cn_loss_scale){0};
    err = cuda_launch_blocks(cuda, CUDA_KERNEL_begin, &args, 1);
    cuda->read = cuda->read && err;
    if (!err)
        err = queue_run(cuda, program, hyper->first);
    for (int i = 0; i < CN_ARENA_COUNT; i++)
        cuda->arenas[i].stale = cuda->arenas[i].stale || program->writes[i];
    if (!err && program->way == COLD)
        warm_up(cuda, program);
    if (err && !cuda->failed)
        cuda->failed = err;
    return err;
}
