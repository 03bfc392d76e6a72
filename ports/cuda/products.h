// products.h - products of matrices: cuBLASLt where it is there and can, else the port's kernel.
#pragma once

#include "ports/cuda/device.h"

// MATMUL and PRODUCTS.
cn_err cuda_products_matmul(struct cuda *cuda, struct cuda_args *args);
cn_err cuda_products_batch(struct cuda *cuda, struct cuda_args *args);
