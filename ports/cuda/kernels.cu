// All kernels in one translation unit: nvcc makes one image of it, the tests one object for the
// host.
#include "ports/cuda/kernels_attention.cu"
#include "ports/cuda/kernels_attention_grad.cu"
#include "ports/cuda/kernels_batch_norm.cu"
#include "ports/cuda/kernels_elementwise.cu"
#include "ports/cuda/kernels_flat.cu"
#include "ports/cuda/kernels_gather.cu"
#include "ports/cuda/kernels_losses.cu"
#include "ports/cuda/kernels_planes.cu"
#include "ports/cuda/kernels_products.cu"
#include "ports/cuda/kernels_recurrent.cu"
#include "ports/cuda/kernels_rows.cu"
