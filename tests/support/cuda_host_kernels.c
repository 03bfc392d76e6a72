// The kernels of ports/cuda on the host: the same text compiled as C, a block's threads as fibers.
//
// A thread runs until it waits for its warp or its block; the next one follows. A kernel whose
// first thread never waits has no need of fibers: the other threads run one after the other.
#include "ports/cuda/kernels.cu"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "tests/support/cuda_host.h"

#define STACK_SIZE (16 * 1024) // a sanitizer looks at all of it at each change of fibers

_Thread_local struct cuda_host_place cuda_host_place;

enum waiting { RUNS, FOR_BLOCK, FOR_WARP, DONE };

struct fiber {
    ucontext_t context;
    enum waiting waiting;
    uint64_t value; // what a warp operation gives
    uint32_t from;  // the lane it takes from
    bool vote;
    uint32_t ballot;
};

struct block {
    void (*kernel)(const struct cuda_args a);
    const struct cuda_args *args;
    struct fiber fibers[CUDA_THREADS];
    ucontext_t scheduler;
    char *stacks;
    bool loose; // threads run without fibers
    uint32_t running;
};

static _Thread_local struct block *current;

static void stop(const char *why)
{
    fprintf(stderr, "cuda_host: %s\n", why);
    abort();
}

static void wait_for(enum waiting what)
{
    struct block *block = current;
    struct fiber *fiber = &block->fibers[block->running];

    if (block->loose)
        stop("threads of a block do not all wait");
    fiber->waiting = what;
    swapcontext(&fiber->context, &block->scheduler);
}

void cuda_host_block_sync(void)
{
    wait_for(FOR_BLOCK);
}

void cuda_host_warp_swap(void *value, size_t size, uint32_t from)
{
    struct fiber *fiber = &current->fibers[cuda_host_place.thread];

    memcpy(&fiber->value, value, size);
    fiber->from = from;
    wait_for(FOR_WARP);
    memcpy(value, &fiber->value, size);
}

uint32_t cuda_host_warp_ballot(bool vote)
{
    struct fiber *fiber = &current->fibers[cuda_host_place.thread];

    fiber->vote = vote;
    fiber->from = cuda_host_place.thread % CUDA_WARP;
    wait_for(FOR_WARP);
    return fiber->ballot;
}

static void run_fiber(void)
{
    struct block *block = current;

    block->kernel(*block->args);
    block->fibers[block->running].waiting = DONE;
    swapcontext(&block->fibers[block->running].context, &block->scheduler);
}

static void start_fiber(struct block *block, uint32_t thread)
{
    struct fiber *fiber = &block->fibers[thread];

    fiber->waiting = RUNS;
    fiber->vote = false;
    fiber->value = 0;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = block->stacks + (size_t)thread * STACK_SIZE;
    fiber->context.uc_stack.ss_size = STACK_SIZE;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, run_fiber, 0);
}

static void resume(struct block *block, uint32_t thread)
{
    block->running = thread;
    cuda_host_place.thread = thread;
    swapcontext(&block->scheduler, &block->fibers[thread].context);
}

// Lets a warp go on once all its threads are there; what they give is exchanged.
static bool release_warp(struct fiber *warp)
{
    uint64_t values[CUDA_WARP];
    uint32_t ballot = 0;

    for (uint32_t i = 0; i < CUDA_WARP; i++) {
        if (warp[i].waiting != FOR_WARP)
            return false;
        values[i] = warp[i].value;
        ballot |= (uint32_t)warp[i].vote << i;
    }
    for (uint32_t i = 0; i < CUDA_WARP; i++) {
        warp[i].value = values[warp[i].from % CUDA_WARP];
        warp[i].ballot = ballot;
        warp[i].waiting = RUNS;
    }
    return true;
}

static bool release_block(struct block *block, uint32_t threads)
{
    for (uint32_t i = 0; i < threads; i++)
        if (block->fibers[i].waiting != FOR_BLOCK && block->fibers[i].waiting != DONE)
            return false;
    for (uint32_t i = 0; i < threads; i++)
        if (block->fibers[i].waiting == FOR_BLOCK)
            block->fibers[i].waiting = RUNS;
    return true;
}

static bool all_done(const struct block *block, uint32_t threads)
{
    for (uint32_t i = 0; i < threads; i++)
        if (block->fibers[i].waiting != DONE)
            return false;
    return true;
}

static void run_block(struct block *block, uint32_t threads)
{
    block->loose = false;
    start_fiber(block, 0);
    resume(block, 0);
    if (block->fibers[0].waiting == DONE) {
        block->loose = true;
        for (uint32_t i = 1; i < threads; i++) {
            cuda_host_place.thread = i;
            block->running = i;
            block->kernel(*block->args);
        }
        return;
    }
    for (uint32_t i = 1; i < threads; i++)
        start_fiber(block, i);
    while (!all_done(block, threads)) {
        bool moved = false;

        for (uint32_t i = 0; i < threads; i++)
            if (block->fibers[i].waiting == RUNS) {
                resume(block, i);
                moved = true;
            }
        for (uint32_t warp = 0; warp < threads; warp += CUDA_WARP)
            moved = release_warp(&block->fibers[warp]) || moved;
        moved = release_block(block, threads) || moved;
        if (!moved)
            stop("threads wait for each other for ever");
    }
}

static void (*const kernels[CUDA_KERNEL_COUNT])(const struct cuda_args a) = {
#define KERNEL_FUNCTION(name) cuda_kernel_##name,
    CUDA_KERNELS(KERNEL_FUNCTION)
#undef KERNEL_FUNCTION
};

static const char *const names[CUDA_KERNEL_COUNT] = {
#define KERNEL_TEXT(name) "cuda_kernel_" #name,
    CUDA_KERNELS(KERNEL_TEXT)
#undef KERNEL_TEXT
};

int cuda_host_kernel(const char *name)
{
    for (int i = 0; i < CUDA_KERNEL_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

void cuda_host_run(int kernel, uint32_t blocks, uint32_t threads, const struct cuda_args *args)
{
    struct block *block = malloc(sizeof(*block));

    if (!block || threads % CUDA_WARP || threads > CUDA_THREADS)
        stop("a block of this size cannot run");
    block->stacks = malloc((size_t)threads * STACK_SIZE);
    if (!block->stacks)
        stop("no memory for stacks");
    block->kernel = kernels[kernel];
    block->args = args;
    current = block;
    cuda_host_place.threads = threads;
    cuda_host_place.blocks = blocks;
    for (uint32_t i = 0; i < blocks; i++) {
        cuda_host_place.block = i;
        run_block(block, threads);
    }
    current = NULL;
    free(block->stacks);
    free(block);
}
