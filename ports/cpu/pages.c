#include "ports/cpu/pages.h"

#include <assert.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20) // bytes
#define STACK ((size_t)256 << 10)   // bytes; the default size would count as memory of the process

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // since Linux 5.14; older kernels refuse it
#endif

void *cpu_pages_map(size_t size)
{
    uint8_t *from =
        mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before, behind;

    if (from == MAP_FAILED)
        return NULL;
    before = -(uintptr_t)from % HUGE_PAGE;
    behind = HUGE_PAGE - before;
    if (before)
        munmap(from, before);
    munmap(from + before + size, behind);
    // This is advice, so it may fail. The end stays in small pages: a large page would be taken
    // whole.
    madvise(from + before, size - size % HUGE_PAGE, MADV_HUGEPAGE);
    return from + before;
}

void cpu_pages_unmap(void *from, size_t size)
{
    munmap(from, size);
}

void cpu_pages_add(struct cpu_pages *pages, void *from, size_t size)
{
    assert(pages->count < CPU_PAGES_RANGES);
    pages->ranges[pages->count].from = from;
    pages->ranges[pages->count++].size = size;
}

// Takes the pages, one large page at a time, so that a thread that changes the process's mappings
// meanwhile waits no longer than that.
static void *take(void *argument)
{
    struct cpu_pages *pages = argument;
    size_t taken = 0;

    for (size_t i = 0; i < pages->count; i++)
        for (size_t at = 0, size; at < pages->ranges[i].size; at += size, taken += size) {
            size = pages->ranges[i].size - at;
            size = size < HUGE_PAGE ? size : HUGE_PAGE;
            if (atomic_load(&pages->stop) || size > pages->limit - taken ||
                madvise((uint8_t *)pages->ranges[i].from + at, size, MADV_POPULATE_WRITE))
                return NULL;
        }
    return NULL;
}

// Returns the number of processors that this process may use.
static unsigned processors(void)
{
    cpu_set_t allowed;

    return sched_getaffinity(0, sizeof(allowed), &allowed) ? 1 : (unsigned)CPU_COUNT(&allowed);
}

static bool start_thread(struct cpu_pages *pages)
{
    pthread_attr_t attributes;
    bool started;

    if (pthread_attr_init(&attributes))
        return false;
    started = !pthread_attr_setstacksize(&attributes, STACK) &&
              !pthread_create(&pages->thread, &attributes, take, pages);
    pthread_attr_destroy(&attributes);
    return started;
}

void cpu_pages_start(struct cpu_pages *pages, size_t limit)
{
    pages->limit = limit;
    atomic_store(&pages->stop, false);
    // With several nodes of memory, each lane takes its own pages, near itself.
    if (pages->count && processors() > 1 && access("/sys/devices/system/node/node1", F_OK))
        pages->running = start_thread(pages);
    pages->started = pages->running;
}

void cpu_pages_run(struct cpu_pages *pages, unsigned lanes)
{
    if (!pages->started)
        return;
    cpu_pages_stop(pages);
    if (processors() > lanes)
        cpu_pages_start(pages, SIZE_MAX);
    pages->started = false;
}

void cpu_pages_stop(struct cpu_pages *pages)
{
    if (!pages->running)
        return;
    atomic_store(&pages->stop, true);
    pthread_join(pages->thread, NULL);
    pages->running = false;
}
