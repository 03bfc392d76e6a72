// update_stream.h - makes a version from its parent a few values at a time.
//
// A board that holds a part of a model thus needs no memory for a whole row. It reads the parent
// from its disk, keeps the values that it needs and computes the digest of all values. Threading:
// none; no state is kept.
#pragma once

#include "runtime/update/update.h"
#include "runtime/update/version.h"

#define CN_UPDATE_STREAM_COUNT 16384 // most values of a piece

// The two ends of a stream. Both are called from the first value to the last, in the same pieces,
// and an error of either ends the stream and is returned.
struct cn_update_stream {
    // Copies count values of the parent, from offset on. NULL where there is no parent, which only
    // a snapshot of all tensors allows.
    cn_err (*read)(void *context, size_t offset, float *values, size_t count);
    // Receives the values of the version. May be NULL.
    cn_err (*take)(void *context, size_t offset, const float *values, size_t count);
    void *context;
};

// Makes the version that cn_update_apply makes, to the bit, with a checked frame. Returns CN_ESTALE
// when it needs the parent and there is none, an error of rounding as cn_update_apply, or one of
// the stream. After an error discard the values that take received.
cn_err cn_update_stream(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                        const struct cn_update_stream *stream);

// As cn_update_stream, and computes the digest of the version with this header.
cn_err cn_update_stream_digest(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                               const struct cn_version_header *header,
                               const struct cn_update_stream *stream,
                               uint8_t digest[CN_DIGEST_SIZE]);
