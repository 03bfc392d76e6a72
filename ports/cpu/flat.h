// flat.h - work on whole arenas, word by word: the gradient sum and the optimizer.
//
// This file's code is compiled once, without contraction and without options of an instruction set:
// the optimizer must give the same bits on every machine.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/port/compute.h"

// total[i] += part[i]; part[i] = 0.
void cpu_flat_add(float *total, float *part, size_t count);

bool cpu_flat_finite(const float *values, size_t count);

// The words of a range that one lane works on. Those that its op does not use may be NULL.
struct cpu_flat {
    const float *gradients;
    float *weights, *first, *second;
    const float *base;
    size_t count;
};

// clip is the factor c of struct cn_hyper, NULL to leave it out.
void cpu_flat_sgd(const struct cn_hyper *hyper, const struct cn_range *range, const float *clip,
                  const struct cpu_flat *flat);
void cpu_flat_adam(const struct cn_hyper *hyper, const struct cn_range *range, const float *clip,
                   const struct cpu_flat *flat);
void cpu_flat_statistic(const struct cn_hyper *hyper, const struct cn_range *range,
                        const struct cpu_flat *flat);

// Squares are added up in the contract's order: chunk by chunk, and then the sums of the chunks.
#define CPU_FLAT_CHUNK ((size_t)256 * 256)

double cpu_flat_squares(const float *gradients, size_t count, float scale); // at most a chunk
double cpu_flat_sum(double *sums, size_t count);                            // overwrites them
float cpu_flat_clip(float clip, double norm);
