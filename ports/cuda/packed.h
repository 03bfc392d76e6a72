// packed.h - large products with factors of 16 bits.
//
// cuBLASLt may round factors of float32 by itself, but on an H200 it then multiplies in TF32, which
// is half as fast as 16 bits, and slower still if rows are not aligned. So the factors of large
// products are packed first, in rows of whole 16 bytes. Results stay float32.
#pragma once

#include "ports/cuda/products.h"

// Returns the words of workspace that packing a product needs beside the library's; 0: it is not
// packed.
size_t cuda_packed_words(const struct cuda *cuda, const struct cuda_product *p);

// Queues a product that is packed. workspace has that many words and cuda->product_words after
// them. CN_ENOTSUP when the product is not packed or the library cannot do it; what was queued then
// changed only the workspace.
cn_err cuda_packed_multiply(struct cuda *cuda, const struct cuda_product *p, float *workspace);
