// source_npz.h - an array of a NumPy archive. Private to source.c.
#pragma once

#include "runtime/engine/data/npy.h"

// Reads the array named member, or the only one for "". An uncompressed array points into data. A
// compressed one (numpy.savez_compressed) is unpacked into *unpacked, which the caller frees. Its
// checksum is verified, and no more memory is taken than its packed bytes can fill.
cn_err cn_source_npz(const char *path, const char *member, const uint8_t *data, size_t size,
                     struct cn_diag *diag, struct cn_npy *array, void **unpacked);
