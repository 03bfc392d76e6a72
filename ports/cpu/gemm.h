// gemm.h - products of matrices with any strides, cut into blocks for the caches and packed.
#pragma once

#include "ports/cpu/kernel.h"

struct cpu_matrix {
    float *data;     // only read in a and b
    size_t row, col; // strides in words
};

// c = alpha a b + bias, then max(c, 0) if relu; or c += alpha a b, without bias or relu.
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

void cpu_gemm(const struct cpu_product *product, float *workspace);

// Words; never less for a larger product.
size_t cpu_gemm_workspace(size_t rows, size_t inner, size_t cols);

// Adds the bias to a block of c whose sums are final, and cuts it, where the product says so.
void cpu_gemm_finish(const struct cpu_product *product, size_t row, size_t col, size_t rows,
                     size_t cols);

static inline struct cpu_matrix cpu_matrix_of(const float *data, size_t row, size_t col)
{
    return (struct cpu_matrix){(float *)(uintptr_t)data, row, col};
}
