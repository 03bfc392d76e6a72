// vendor_image.h - copies a vendor's image before changing it: .img, .img.zst, .img.xz, .img.gz.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Copies base to the new file out, unpacking it on the way. out has mode 0600 and holes in place of
// zeros. Returns an exit code; out is removed after an error.
int cn_vendor_image_copy(const char *base, const char *out, uint64_t *size);

// Tells from the name's ending whether the image is compressed.
bool cn_vendor_image_is_packed(const char *base);

// Refuses a file whose first bytes are those of a zip archive, of a sparse or qcow2 image, or of
// packed data, and says what it is. Messages call the file by name. Returns an exit code.
int cn_vendor_image_check_raw(const char *path, const char *name);
