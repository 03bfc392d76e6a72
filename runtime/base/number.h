// number.h - the number formats that a profile can choose.
#pragma once

// The element types of a reduction. Two-byte floats are added in float32 and rounded to nearest
// even after each addition.
enum cn_number {
    CN_FLOAT32,
    CN_BFLOAT16,
    CN_FLOAT16,
    CN_INT64, // sums wrap around on overflow
};

// The format to which matrix products, convolutions and attention (CN_OP_MATMUL, CN_OP_PRODUCTS,
// CN_OP_CONV and CN_OP_ATTENTION of runtime/port/compute.h) round their factors before multiplying.
// A port may leave attention in float32. Sums, all other ops and all stored values stay float32.
// With 16 bits a port may also round the results of a convolution and of its gradients. With
// float16 the port scales the loss itself. Gradients are unscaled once CN_OP_SUM_LANES has run.
enum cn_precision {
    CN_PRECISION_FLOAT32,
    CN_PRECISION_BFLOAT16,
    CN_PRECISION_FLOAT16,
    CN_PRECISION_TF32, // the exponent of float32, the 10 bits of float16
};
