#include "ports/cuda/updates.h"

#include <stdint.h>

static float *arena_of(const struct cuda *cuda, enum cn_arena arena)
{
    return (float *)(uintptr_t)cuda->arenas[arena].device;
}

bool cuda_is_update(const struct cn_call *call)
{
    return call->op == CN_OP_SGD || call->op == CN_OP_ADAM || call->op == CN_OP_STATISTIC;
}

static bool share_launch(const struct cn_call *a, const struct cn_call *b)
{
    const struct cn_range *x = &a->range, *y = &b->range;

    return a->op == b->op && x->nesterov == y->nesterov && x->decoupled == y->decoupled &&
           x->beta1 == y->beta1 && x->beta2 == y->beta2 && x->epsilon == y->epsilon &&
           x->momentum == y->momentum && x->proximal == y->proximal && x->no_decay == y->no_decay &&
           x->share == y->share && x->own == y->own;
}

void cuda_updates_sort(struct cn_call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t end = i + 1;

        if (!cuda_is_update(&calls[i]))
            continue;
        for (size_t j = end; j < count && cuda_is_update(&calls[j]); j++) {
            struct cn_call call = calls[j];

            if (!share_launch(&calls[i], &call))
                continue;
            calls[j] = calls[end];
            calls[end++] = call;
        }
        i = end - 1;
    }
}

// Returns the end of the calls that share a launch with calls[first].
static size_t end_of(const struct cn_call *calls, size_t count, size_t first)
{
    size_t end = first + 1;

    while (end < count && share_launch(&calls[first], &calls[end]))
        end++;
    return end;
}

// Fills in the entries of calls that share a launch. The words of an arena fit in an int32.
static void fill_in(const struct cn_call *calls, size_t count, struct cuda_range *entries)
{
    uint32_t end = 0;

    for (size_t i = 0; i < count; i++) {
        const struct cn_range *range = &calls[i].range;

        end += (uint32_t)range->count;
        entries[i] = (struct cuda_range){.weights = (uint32_t)range->weights,
                                         .gradients = (uint32_t)range->gradients,
                                         .state = (uint32_t)(range->weights - range->state_from),
                                         .end = end};
    }
}

// Fills in the entries of sorted calls.
static void fill_in_all(const struct cn_call *calls, size_t count, struct cuda_range *entries)
{
    for (size_t first = 0, end; first < count; first = end) {
        end = end_of(calls, count, first);
        fill_in(calls + first, end - first, entries + first);
    }
}

cn_err cuda_updates_make_table(struct cuda *cuda, const struct cn_call *calls, size_t count,
                               CUdeviceptr *table)
{
    const struct cuda_driver *driver = &cuda->library.driver;
    size_t size = count * sizeof(struct cuda_range);
    void *entries = NULL; // pinned, as copies need it
    bool any = false;
    CUresult result;

    *table = 0;
    for (size_t i = 0; i < count; i++)
        any = any || cuda_is_update(&calls[i]);
    if (!any)
        return CN_OK;
    result = driver->allocate_host(&entries, size, CU_MEMHOSTALLOC_PORTABLE);
    if (result)
        return cuda_check(cuda, result, "cuMemHostAlloc");
    fill_in_all(calls, count, entries);
    result = driver->allocate(table, size);
    if (result)
        *table = 0;
    if (!result)
        result = driver->copy_in(*table, entries, size, cuda->stream);
    if (!result)
        result = driver->stream_wait(cuda->stream);
    driver->release_host(entries);
    return cuda_check(cuda, result, "the table of the optimizer's ranges");
}

static enum cuda_kernel kernel_of(enum cn_op op)
{
    return op == CN_OP_SGD    ? CUDA_KERNEL_sgd
           : op == CN_OP_ADAM ? CUDA_KERNEL_adam
                              : CUDA_KERNEL_statistic;
}

cn_err cuda_updates_queue(struct cuda *cuda, const struct cn_call *calls, size_t count,
                          CUdeviceptr table, bool clipped, size_t *next)
{
    size_t first = *next, end = end_of(calls, count, first);
    const struct cn_range *range = &calls[first].range;
    const enum cn_arena arenas[] = {
        range->share ? CN_ARENA_SHARE : CN_ARENA_GRADIENTS,
        range->own ? CN_ARENA_OWN : CN_ARENA_WEIGHTS,
        CN_ARENA_OPTIMIZER,
        CN_ARENA_SECOND,
        CN_ARENA_BASE,
    };
    struct cuda_args args;
    uint64_t words = 0;

    cuda_args_of(cuda, &calls[first], &args);
    args.clipped = clipped;
    args.workspace = (float *)(uintptr_t)(table + first * sizeof(struct cuda_range));
    args.parts = (uint32_t)(end - first);
    for (int i = 0; i < 5; i++)
        args.in[i] = arena_of(cuda, arenas[i]);
    for (size_t i = first; i < end; i++)
        words += calls[i].range.count;
    *next = end;
    return words ? cuda_launch_threads(cuda, kernel_of(calls[first].op), &args, words) : CN_OK;
}
