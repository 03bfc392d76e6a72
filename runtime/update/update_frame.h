// update_frame.h - the header of a frame, private to runtime/update. The format is UPDATE.md.
#pragma once

#include "runtime/update/update.h"

#define CN_UPDATE_FIXED_SIZE 80 // bytes of a header without the group's name
#define CN_UPDATE_HEADER_SIZE (CN_UPDATE_FIXED_SIZE + CN_NAME_SIZE - 1)

// Writes the header of a frame for total values; *size is its number of bytes. Returns CN_EINVAL
// for a group or rule that no frame can hold, CN_ERANGE for such a weight.
cn_err cn_update_frame_put(const struct cn_update_header *header, size_t total,
                           uint8_t bytes[CN_UPDATE_HEADER_SIZE], size_t *size);

// Reads the header of a frame for total values; *used is its number of bytes. Returns CN_EFORMAT or
// CN_ERANGE, with a line in diag.
cn_err cn_update_frame_get(const uint8_t *bytes, size_t size, size_t total, struct cn_diag *diag,
                           struct cn_update_header *header, size_t *used);
