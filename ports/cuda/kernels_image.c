#include "ports/cuda/kernels_image.h"

// The compilers' images, byte for byte. CMakeLists.txt defines the files and the driver.
#define INCLUDE_IMAGE(name, file)                                                                  \
    __asm__(".section .rodata\n"                                                                   \
            ".balign 16\n" #name ":\n"                                                             \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".text\n");                                                                            \
    extern const unsigned char name[] __attribute__((visibility("hidden")));

INCLUDE_IMAGE(cuda_image_for_all, CUDA_IMAGE_FOR_ALL)
#ifdef CUDA_IMAGE_FOR_110
INCLUDE_IMAGE(cuda_image_for_110, CUDA_IMAGE_FOR_110)
#endif

const struct cuda_image cuda_images[] = {
#ifdef CUDA_IMAGE_FOR_110
    {cuda_image_for_110, 110},
#endif
    {cuda_image_for_all, 0},
};

const int cuda_images_driver = CUDA_IMAGES_DRIVER;
