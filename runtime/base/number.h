// number.h - the formats of numbers that a profile can choose.
#pragma once

// The element types of a reduction. Two-byte floats are added in float32 and rounded to nearest
// even after each addition.
enum cn_number {
    CN_FLOAT32,
    CN_BFLOAT16,
    CN_FLOAT16,
    CN_INT64, // sums wrap
};

// How the factors of MATMUL, PRODUCTS and convolutions are rounded before they are multiplied.
// Sums, every other op and all that is stored stay float32. With float16 the port scales the loss
// itself; gradients are unscaled once SUM_LANES has run.
enum cn_precision {
    CN_PRECISION_FLOAT32,
    CN_PRECISION_BFLOAT16,
    CN_PRECISION_FLOAT16,
};
