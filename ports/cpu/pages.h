// pages.h - memory of arenas in pages of their own, large ones if the system has them.
//
// The system clears a page when it is first touched. That is most of the extra time of a first
// step. So a thread touches ("takes") pages ahead while the owner reads the weights. It continues
// during the first run if there are more processors than lanes. It changes no contents.
//
// Threading: the owner's thread makes all calls.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

// The ranges whose pages are to be taken, and the thread that takes them. A zeroed struct is valid.
#define CPU_PAGES_RANGES 8

struct cpu_pages {
    struct {
        void *from;
        size_t size;
    } ranges[CPU_PAGES_RANGES];
    size_t count;
    size_t limit;          // bytes to take, at most
    bool started, running; // a first run is still to come; the thread exists
    atomic_bool stop;
    pthread_t thread;
};

// Maps size bytes of zeroed memory; size is a multiple of every page size. Returns NULL if there is
// none. Release with cpu_pages_unmap, given the same size.
void *cpu_pages_map(size_t size);
void cpu_pages_unmap(void *from, size_t size);

// Appends a range to take. Add ranges in the order of their use.
void cpu_pages_add(struct cpu_pages *pages, void *from, size_t size);

// Starts a thread that takes up to limit bytes. Does nothing where that gains nothing or the system
// cannot do it: pages are then taken when they are touched.
void cpu_pages_start(struct cpu_pages *pages, size_t limit);

// Call before each run, with its number of lanes. Before the first run, this stops the thread, or
// lets it take the rest during that run if there are more processors than lanes.
void cpu_pages_run(struct cpu_pages *pages, unsigned lanes);

// Stops the thread. Call before a range is unmapped.
void cpu_pages_stop(struct cpu_pages *pages);
