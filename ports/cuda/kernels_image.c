// The image that nvcc made of kernels.cu, byte for byte. CUDA_KERNELS_FILE comes from
// CMakeLists.txt.
#include "ports/cuda/cuda_library.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global cuda_kernels_image\n"
        ".type cuda_kernels_image, @object\n"
        "cuda_kernels_image:\n"
        ".incbin \"" CUDA_KERNELS_FILE "\"\n"
        ".size cuda_kernels_image, . - cuda_kernels_image\n"
        ".byte 0\n"
        ".text\n");
