// vendor_image.h - a copy of the vendor's image to put things into: .img, .img.zst, .img.xz,
// .img.gz.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Copies base to a new file out (0600, holes where it is zero) and unpacks it on the way. An exit
// code; out is removed after an error.
int cn_vendor_image_copy(const char *base, const char *out, uint64_t *size);

// By its name.
bool cn_vendor_image_is_packed(const char *base);
