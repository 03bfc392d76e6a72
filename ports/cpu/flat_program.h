// flat_program.h - runs flat calls: consecutive calls of one kind are one pass over the lanes.
//
// Threading: the port's one thread, which is lane 0.
#pragma once

#include "ports/cpu/lanes.h"
#include "runtime/port/compute.h"

// The arenas that flat calls work on, and their sizes in words. The gradients of lane i begin at
// gradients + i * lane_words.
struct cpu_flat_arenas {
    float *gradients, *weights, *first, *second, *base, *share, *own;
    size_t gradient_words, lane_words;
    uint32_t lanes;
};

// Returns the number of doubles that cpu_flat_program_run needs to add up squares.
size_t cpu_flat_program_sums(const struct cn_call *calls, size_t count);

// Runs the calls and updates result: norm after a CLIP call; finite becomes false if a CHECK call
// finds a value that is not, and the calls after it are skipped. sums has as many doubles as
// cpu_flat_program_sums said.
void cpu_flat_program_run(struct cpu_lanes *threads, const struct cpu_flat_arenas *arenas,
                          const struct cn_call *calls, size_t count, const struct cn_hyper *hyper,
                          double *sums, struct cn_compute_result *result);
