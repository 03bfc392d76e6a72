// source_npz.h - an array of a NumPy archive. Private to source.c.
#pragma once

#include "runtime/engine/data/npy.h"

// member is the array's name, or "" for the only one. An array that is stored as it is points into
// data. A compressed one (numpy.savez_compressed) is unpacked into *unpacked, which the caller
// frees; its checksum is compared, and no more memory is taken than its packed bytes can fill.
cn_err cn_source_npz(const char *path, const char *member, const uint8_t *data, size_t size,
                     struct cn_diag *diag, struct cn_npy *array, void **unpacked);
