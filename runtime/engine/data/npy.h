// npy.h - reads the header of a .npy file.
//
// Format: NEP 1 (numpy.org/neps/nep-0001-npy-format.html), versions 1 to 3. Any bytes give an array
// that lies inside them, or an error. Fortran order, big-endian numbers and types that are not
// numbers are refused, with a line that tells how to save the file instead.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"

#define CN_NPY_RANK_MAX 8

enum cn_npy_kind {
    CN_NPY_FLOAT,
    CN_NPY_INT,
    CN_NPY_UINT, // booleans too: 0 and 1
};

struct cn_npy {
    enum cn_npy_kind kind;
    uint32_t element_size; // bytes: 1, 2, 4 or 8
    uint32_t rank;
    uint64_t dims[CN_NPY_RANK_MAX];
    size_t count;        // elements: the product of dims, 1 for rank 0
    const uint8_t *data; // borrowed; count elements in C order, not aligned; NULL when count is 0
};

// Parses a file of size bytes in memory; npy->data points into it. path is only for messages.
// CN_EFORMAT or CN_ENOTSUP with a line in diag.
cn_err cn_npy_parse(const uint8_t *file, size_t size, const char *path, struct cn_diag *diag,
                    struct cn_npy *npy);

// Returns element index of an integer array. A UINT64 above INT64_MAX becomes INT64_MAX, which is
// out of every range.
int64_t cn_npy_int(const struct cn_npy *npy, size_t index);

// Writes the element type to text: "float32", "int64" and so on.
#define CN_NPY_TYPE_SIZE 16
void cn_npy_type_text(const struct cn_npy *npy, char text[CN_NPY_TYPE_SIZE]);
