// pages.h - memory of arenas in pages of their own, large ones if the system has them.
//
// The system clears a page when it is touched first, and that is most of what a first step takes
// beyond a usual one. So a thread takes pages ahead while the owner reads the weights, and goes on
// in the first run if there are more processors than lanes. It changes nothing in them.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define CPU_PAGES_RANGES 8

struct cpu_pages {
    struct {
        void *from;
        size_t size;
    } ranges[CPU_PAGES_RANGES];
    size_t count;
    size_t limit; // bytes to take at most
    bool started, running;
    atomic_bool stop;
    pthread_t thread;
};

// Zeroed memory; size is a multiple of every page size. NULL: there is none.
void *cpu_pages_map(size_t size);
void cpu_pages_unmap(void *from, size_t size);

// Appends what is to be taken, in the order of its use.
void cpu_pages_add(struct cpu_pages *pages, void *from, size_t size);

// Begins to take as many bytes as limit says. Does nothing where it gains nothing or the system
// cannot: pages come when they are touched.
void cpu_pages_start(struct cpu_pages *pages, size_t limit);

// To be called before a run on so many lanes: takes the rest beside the first one, or leaves it to
// them.
void cpu_pages_run(struct cpu_pages *pages, unsigned lanes);

// To be called before a range is unmapped.
void cpu_pages_stop(struct cpu_pages *pages);
