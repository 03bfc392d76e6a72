// gemm.h - products of matrices with any strides, blocked for the caches and packed.
//
// Threading: any; the workspace is the caller's. Up to CPU_SLACK words beyond an operand may be
// read.
#pragma once

#include "ports/cpu/kernel.h"

struct cpu_matrix {
    float *data;     // a and b are only read
    size_t row, col; // strides in words
};

// A product: c = alpha a b + bias, then max(c, 0) if relu. With add it is c += alpha a b, without
// bias or relu. a is rows x inner, b is inner x cols.
struct cpu_product {
    size_t rows, inner, cols;
    struct cpu_matrix a, b, c;
    float alpha;
    bool add, relu;
    const float *bias; // element (i, j) is bias[i * bias_row + j * bias_col]; NULL for none
    size_t bias_row, bias_col;
    float bias_scale;
};

#define cpu_gemm CPU_NAME(gemm)
#define cpu_gemm_finish CPU_NAME(gemm_finish)
#define cpu_gemm_workspace CPU_NAME(gemm_workspace)

// Computes a product. workspace has as many words as cpu_gemm_workspace says. In each of a, b and
// c, one of the strides must be 1 for gemm_openblas.c.
void cpu_gemm(const struct cpu_product *product, float *workspace);

// Returns the words of workspace. A larger product never needs less.
size_t cpu_gemm_workspace(size_t rows, size_t inner, size_t cols);

// Adds the bias to a block of c whose sums are final, and applies ReLU, if the product says so.
void cpu_gemm_finish(const struct cpu_product *product, size_t row, size_t col, size_t rows,
                     size_t cols);

// Returns a view of data with these strides in words.
static inline struct cpu_matrix cpu_matrix_of(const float *data, size_t row, size_t col)
{
    return (struct cpu_matrix){(float *)(uintptr_t)data, row, col};
}
