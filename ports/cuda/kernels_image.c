#include "ports/cuda/kernels_image.h"

// The compilers' images, byte for byte. CMakeLists.txt defines the files and the driver.
#define INCLUDE_IMAGE(name, file)                                                                  \
    __asm__(".section .rodata\n"                                                                   \
            ".balign 16\n" #name ":\n"                                                             \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".text\n")

INCLUDE_IMAGE(cuda_image_for_all, CUDA_IMAGE_FOR_ALL);
extern const unsigned char cuda_image_for_all[] __attribute__((visibility("hidden")));
#ifdef CUDA_IMAGE_FOR_110
INCLUDE_IMAGE(cuda_image_for_110, CUDA_IMAGE_FOR_110);
extern const unsigned char cuda_image_for_110[] __attribute__((visibility("hidden")));
#endif

const struct cuda_image cuda_images[] = {
#ifdef CUDA_IMAGE_FOR_110
    {cuda_image_for_110, 110},
#endif
    {cuda_image_for_all, 0},
};

const int cuda_images_driver = CUDA_IMAGES_DRIVER;
