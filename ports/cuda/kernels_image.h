// kernels_image.h - the compiled kernels, as bytes in the program.
//
// GPUs that the oldest supported drivers do not know have an image of their own. So these drivers
// never see code in a format that is newer than they are.
#pragma once

#include <stdint.h>

struct cuda_image {
    const unsigned char *data; // as cuModuleLoadData takes it
    uint32_t capability; // times 10, of the only GPUs that load this image; 0: all of 8.0 or later
};

// The last image is that for all GPUs.
extern const struct cuda_image cuda_images[];

// The oldest driver that loads the image for all GPUs, as cuDriverGetVersion counts.
extern const int cuda_images_driver;
