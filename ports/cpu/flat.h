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

void cpu_flat_sgd(const struct cn_hyper *hyper, const float *gradient, float *weights,
                  float *momentum, size_t count);
