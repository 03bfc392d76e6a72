// version.h - a version of the model as bytes, and their digest.
//
// A version is
//     offset  size  content
//          0    16  "cairn-version-1\0"
//         16    32  graph digest: SHA-256 of the graph blob (runtime/engine/GRAPH.md)
//         48    32  digest of the parent version; zeros for the first
//         80     8  number of float32 values, little-endian
//         88  4*n  values, little-endian float32: the row of GRAPH.md, the layout
// The digest of a version is the SHA-256 of all these bytes. A full model travels as exactly these
// bytes. Threading: none; no state is kept.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"
#include "runtime/engine/layout.h"

#define CN_VERSION_HEADER_SIZE 88

struct cn_version_header {
    uint8_t graph[CN_DIGEST_SIZE];
    uint8_t parent[CN_DIGEST_SIZE];
    uint64_t count; // float32 values
};

void cn_version_put_header(const struct cn_version_header *header,
                           uint8_t bytes[CN_VERSION_HEADER_SIZE]);

// Reads and checks the header of a version of size bytes. Returns CN_EFORMAT for another magic,
// CN_ERANGE when size is not exactly that of header and count values.
cn_err cn_version_get_header(const uint8_t *bytes, size_t size, struct cn_version_header *header);

// Computes the digest of the version with this header and header->count values.
void cn_version_digest(const struct cn_version_header *header, const float *values,
                       uint8_t digest[CN_DIGEST_SIZE]);

// Returns the most bytes that a version takes on a board while it arrives, full or as a delta: what
// is downloaded, its copy for the worker, and the row that is decoded from it.
uint64_t cn_version_memory(const struct cn_layout *layout);
