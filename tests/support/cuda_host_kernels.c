// Runs the kernels of ports/cuda on the host: the same text compiled as C, with the threads of a
// block as fibers.
//
// A thread runs until it waits for its warp or its block; then the next thread runs. A warp runs
// until it waits for its block; then the next warp begins. If the first thread of a kernel never
// waits, the other threads run one after the other without fibers. With the setting `backwards` the
// last block, warp and thread run first, so that a missing wait shows in one of the two orders. All
// threads are fibers then, as the last thread may have less to do than the first.
#include "ports/cuda/kernels/kernels.cu"

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/cuda_host.h"
#include "tests/support/fiber.h"

#define STACK_SIZE (16 * 1024)
#define STACK_STEP                                                                                 \
    (STACK_SIZE + 7 * 64) // not a multiple of a page, so that stacks share fewer cache lines

_Thread_local struct cuda_host_place cuda_host_place;

enum waiting { RUNS, FOR_BLOCK, FOR_WARP, DONE };

struct thread {
    struct fiber fiber; // is reused: at the end of a block it waits for the next block
    bool begun;
    enum waiting waiting;
    uint64_t value; // result of a warp operation
    uint32_t from;  // lane whose value this thread takes
    bool vote;
    uint32_t ballot;
};

struct block {
    void (*kernel)(const struct cuda_args a);
    const struct cuda_args *args;
    struct thread all[CUDA_THREADS];
    struct fiber scheduler;
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

// Returns the number of the item that runs as number i of count.
static uint32_t turn(uint32_t i, uint32_t count)
{
    return cuda_host_settings.backwards ? count - 1 - i : i;
}

// Returns the fiber of the next thread of this warp that can run, counted from `from`; the
// scheduler's if none can.
static const struct fiber *next_fiber(struct block *block, uint32_t warp, uint32_t from)
{
    for (uint32_t i = from; i < CUDA_WARP; i++) {
        uint32_t number = warp + turn(i, CUDA_WARP);

        if (block->all[number].waiting == RUNS) {
            block->running = cuda_host_place.thread = number;
            return &block->all[number].fiber;
        }
    }
    return &block->scheduler;
}

static void wait_for(enum waiting what)
{
    struct block *block = current;
    struct thread *thread = &block->all[block->running];
    uint32_t lane = block->running % CUDA_WARP;

    if (block->loose)
        stop("threads of a block do not all wait");
    thread->waiting = what;
    fiber_change(&thread->fiber,
                 next_fiber(block, block->running - lane, turn(lane, CUDA_WARP) + 1));
}

void cuda_host_block_sync(void)
{
    wait_for(FOR_BLOCK);
}

void cuda_host_warp_swap(void *value, size_t size, uint32_t from)
{
    struct thread *thread = &current->all[cuda_host_place.thread];

    memcpy(&thread->value, value, size);
    thread->from = from;
    wait_for(FOR_WARP);
    memcpy(value, &thread->value, size);
}

uint32_t cuda_host_warp_ballot(bool vote)
{
    struct thread *thread = &current->all[cuda_host_place.thread];

    thread->vote = vote;
    thread->from = cuda_host_place.thread % CUDA_WARP;
    wait_for(FOR_WARP);
    return thread->ballot;
}

static void run_thread(void)
{
    struct block *block = current;

    for (;;) {
        block->kernel(*block->args);
        wait_for(DONE);
    }
}

static void start(struct block *block, uint32_t number)
{
    struct thread *thread = &block->all[number];

    thread->waiting = RUNS;
    thread->vote = false;
    thread->value = 0;
    if (!thread->begun)
        fiber_begin(&thread->fiber, block->stacks + (size_t)number * STACK_STEP, STACK_SIZE,
                    run_thread);
    thread->begun = true;
}

// Lets a warp continue once all its threads wait for it, and exchanges their values.
static bool release_warp(struct thread *warp)
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

// Returns false if a thread waits for something else, or all threads are done.
static bool release_block(struct block *block, uint32_t threads)
{
    bool released = false;

    for (uint32_t i = 0; i < threads; i++)
        if (block->all[i].waiting != FOR_BLOCK && block->all[i].waiting != DONE)
            return false;
    for (uint32_t i = 0; i < threads; i++)
        if (block->all[i].waiting == FOR_BLOCK) {
            block->all[i].waiting = RUNS;
            released = true;
        }
    return released;
}

static bool all_done(const struct block *block, uint32_t threads)
{
    for (uint32_t i = 0; i < threads; i++)
        if (block->all[i].waiting != DONE)
            return false;
    return true;
}

// Runs a warp until all of its threads wait for the block or are done.
static void run_warp(struct block *block, uint32_t warp)
{
    do {
        const struct fiber *next = next_fiber(block, warp, 0);

        if (next != &block->scheduler)
            fiber_change(&block->scheduler, next);
    } while (release_warp(&block->all[warp]));
}

// Runs thread 0 and, if it never waits, the others. Returns true if all threads are done.
static bool run_loose(struct block *block, uint32_t threads)
{
    start(block, 0);
    fiber_change(&block->scheduler, next_fiber(block, 0, 0));
    block->loose = block->all[0].waiting == DONE;
    for (uint32_t i = 1; i < threads && block->loose; i++) {
        block->running = cuda_host_place.thread = i;
        block->kernel(*block->args);
    }
    return block->loose;
}

static void run_block(struct block *block, uint32_t threads)
{
    bool begun = !cuda_host_settings.backwards;
    uint32_t warps = threads / CUDA_WARP;

    block->loose = false;
    for (uint32_t i = 0; i < threads; i++)
        block->all[i].waiting = DONE;
    if (begun && run_loose(block, threads))
        return;
    for (uint32_t i = begun; i < threads; i++)
        start(block, i);
    do
        for (uint32_t i = 0; i < warps; i++)
            run_warp(block, turn(i, warps) * CUDA_WARP);
    while (release_block(block, threads));
    if (!all_done(block, threads))
        stop("threads wait for each other for ever");
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
    struct block *block = calloc(1, sizeof(*block));

    if (!block || threads % CUDA_WARP || threads > CUDA_THREADS)
        stop("a block of this size cannot run");
    block->stacks = malloc((size_t)threads * STACK_STEP);
    if (!block->stacks)
        stop("no memory for stacks");
    block->kernel = kernels[kernel];
    block->args = args;
    current = block;
    cuda_host_place.threads = threads;
    cuda_host_place.blocks = blocks;
    for (uint32_t i = 0; i < blocks; i++) {
        cuda_host_place.block = turn(i, blocks);
        run_block(block, threads);
    }
    current = NULL;
    free(block->stacks);
    free(block);
}
