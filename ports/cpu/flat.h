// flat.h - work on whole arenas, word by word: the gradient sum and the optimizers.
//
// flat.c is compiled once, without contraction and without the options of an instruction set,
// because the optimizers must give the same bits on every machine. The formulas are those of struct
// cn_hyper. Threading: any; lanes work on different words.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/port/compute.h"

// Adds and clears: total[i] += part[i]; part[i] = 0. The two must not overlap.
void cpu_flat_add(float *total, float *part, size_t count);

// Returns whether no value is infinite or NaN.
bool cpu_flat_finite(const float *values, size_t count);

// The words of a range that one lane works on. Pointers that the op does not use may be NULL.
struct cpu_flat {
    const float *gradients;
    float *weights, *first, *second;
    const float *base;
    size_t count;
};

// Both update weights and first, Adam also second. clip is the factor c of struct cn_hyper; NULL
// leaves it out.
void cpu_flat_sgd(const struct cn_hyper *hyper, const struct cn_range *range, const float *clip,
                  const struct cpu_flat *flat);
void cpu_flat_adam(const struct cn_hyper *hyper, const struct cn_range *range, const float *clip,
                   const struct cpu_flat *flat);

// Updates weights that are running statistics.
void cpu_flat_statistic(const struct cn_hyper *hyper, const struct cn_range *range,
                        const struct cpu_flat *flat);

// Words of a chunk. Squares are added up in the contract's order: within each chunk, then the sums
// of the chunks.
#define CPU_FLAT_CHUNK ((size_t)256 * 256)

// Returns the sum of (gradient * scale)^2 over at most CPU_FLAT_CHUNK words.
double cpu_flat_squares(const float *gradients, size_t count, float scale);

// Returns the sum of the chunks' sums. Overwrites sums.
double cpu_flat_sum(double *sums, size_t count);

// Returns the factor c of struct cn_hyper for the limit clip and the gradient's norm.
float cpu_flat_clip(float clip, double norm);
