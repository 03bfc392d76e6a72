// version.h - a version of the model: the bytes that its digest is over.
//
// A version is
//     offset  size  content
//          0    16  "cairn-version-1\0"
//         16    32  graph digest: SHA-256 of the graph blob (runtime/engine/GRAPH.md)
//         48    32  digest of the parent version; zeros for the first
//         80     8  number of float32 values, little-endian
//         88  4*n  values, little-endian float32: the row of GRAPH.md, the layout
// and its digest is the SHA-256 of all that. A full model travels as exactly these bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"

#define CN_VERSION_HEADER_SIZE 88

struct cn_version_header {
    uint8_t graph[CN_DIGEST_SIZE];
    uint8_t parent[CN_DIGEST_SIZE];
    uint64_t count;
};

void cn_version_put_header(const struct cn_version_header *header,
                           uint8_t bytes[CN_VERSION_HEADER_SIZE]);

// CN_EFORMAT for another magic, CN_ERANGE when size is not exactly that of count values.
cn_err cn_version_get_header(const uint8_t *bytes, size_t size, struct cn_version_header *header);

// Digest of the version made of header and values.
void cn_version_digest(const struct cn_version_header *header, const float *values,
                       uint8_t digest[CN_DIGEST_SIZE]);
