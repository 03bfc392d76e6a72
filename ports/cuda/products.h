// products.h - matrix products: by cuBLASLt if it is installed and supports the call, else by the
// port's kernel.
//
// All functions that return cn_err queue work; errors of that work come from wait.
#pragma once

#include "ports/cuda/device.h"

// A product for cuBLASLt: c = alpha op(a) op(b) + beta c, row-major, for count matrices at strides;
// then an epilogue.
struct cuda_product {
    uint64_t rows, inner, cols;
    bool transpose_a, transpose_b;
    float alpha, beta;
    const float *a, *b; // factors that are not float32 count in leading_a and leading_b
    float *c;
    cudaDataType factors;                     // type of a and b; 0: float32
    uint64_t leading_a, leading_b, leading_c; // words from row to row
    uint64_t count;
    int64_t stride_a, stride_b, stride_c; // words from matrix to matrix
    cublasLtEpilogue_t end;
    const float *vector; // of the epilogue: a bias; NULL: none
    const float *aside;  // of the epilogue: a matrix laid out as c; NULL: none
    bool apart;          // samples lie apart in a: it cannot be packed
    size_t taken;        // words at the workspace's begin that are not the library's
};

// Returns the words of workspace of a MATMUL or PRODUCTS call.
size_t cuda_products_workspace(const struct cuda *cuda, const struct cn_call *call, size_t samples);

// Queue a MATMUL and a PRODUCTS call.
cn_err cuda_products_matmul(struct cuda *cuda, struct cuda_args *args);
cn_err cuda_products_batch(struct cuda *cuda, struct cuda_args *args);

// Queues a call and the one after it as one product of the library. CN_ENOTSUP when they are not
// such a pair or the library cannot do it: queue them one by one.
cn_err cuda_products_pair(struct cuda *cuda, const struct cn_call *first,
                          const struct cn_call *second);

// Describes a MATMUL with its bias, if that has no factor.
struct cuda_product cuda_products_describe(const struct cuda_args *args);

// Queues a product by the library; workspace has cuda->product_words words. CN_ENOTSUP when the
// library cannot do it; nothing is queued then.
cn_err cuda_products_multiply(struct cuda *cuda, const struct cuda_product *p, float *workspace);

// Most proposals of the library that are looked at.
#define CUDA_PRODUCT_PROPOSALS 32

// As cuda_products_multiply, by the proposal of the library with this number; 0 is the one that
// cuda_products_multiply takes. CN_ENOTFOUND when it makes fewer. For benches.
cn_err cuda_products_multiply_by(struct cuda *cuda, const struct cuda_product *p, int proposal,
                                 float *workspace);
