// products.h - products of matrices: cuBLASLt where it is there and can, else the port's kernel.
#pragma once

#include "ports/cuda/device.h"

// c = alpha op(a) op(b) + beta c, row-major, count matrices at strides; then an epilogue.
struct cuda_product {
    uint64_t rows, inner, cols;
    bool transpose_a, transpose_b;
    float alpha, beta;
    const float *a, *b;
    float *c;
    uint64_t leading_a, leading_b, leading_c;
    uint64_t count;
    int64_t stride_a, stride_b, stride_c; // words
    cublasLtEpilogue_t end;
    const float *vector; // of the epilogue: a bias, or where the gradient of one goes
    const float *aside;  // of the epilogue: a matrix that lies as c does
    size_t reserved;     // words at the end of the workspace that are not the library's
};

// MATMUL and PRODUCTS.
cn_err cuda_products_matmul(struct cuda *cuda, struct cuda_args *args);
cn_err cuda_products_batch(struct cuda *cuda, struct cuda_args *args);

// A call and the one behind it as one product of the library. CN_ENOTSUP when they are not such a
// pair or the library cannot do it: they are to be queued one by one.
cn_err cuda_products_pair(struct cuda *cuda, const struct cn_call *first,
                          const struct cn_call *second);

// For these: a MATMUL with its bias and ReLU; the library's work, CN_ENOTSUP when it has no way to
// do it; clears words of the output that it will add to, where the run is the first of a step.
struct cuda_product cuda_products_describe(const struct cuda_args *args);
cn_err cuda_products_multiply(struct cuda *cuda, const struct cuda_product *p, float *workspace);
cn_err cuda_products_clear(struct cuda *cuda, const struct cuda_args *args, size_t words);
