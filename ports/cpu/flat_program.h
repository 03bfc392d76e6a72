// flat_program.h - runs flat calls: consecutive calls of one kind are one pass over the lanes.
#pragma once

#include "ports/cpu/lanes.h"
#include "runtime/port/compute.h"

// What flat calls work on. The gradients of the other lanes follow the first's every lane_words.
struct cpu_flat_arenas {
    float *gradients, *weights, *first, *second, *base, *share, *own;
    size_t gradient_words, lane_words;
    uint32_t lanes;
};

// Room that the calls need to add up squares.
size_t cpu_flat_program_sums(const struct cn_call *calls, size_t count);

// Adds to result. sums is as large as cpu_flat_program_sums said.
void cpu_flat_program_run(struct cpu_lanes *threads, const struct cpu_flat_arenas *arenas,
                          const struct cn_call *calls, size_t count, const struct cn_hyper *hyper,
                          double *sums, struct cn_compute_result *result);
