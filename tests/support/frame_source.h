// frame_source.h - an update cursor's source that reads a frame in memory.
#pragma once

#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/update/update_cursor.h"

// Refuses bytes beyond the end of the frame with CN_ERANGE.
static inline cn_err read_frame(void *context, uint64_t offset, void *data, size_t size)
{
    const struct cn_buffer *frame = context;

    if (offset > frame->size || size > frame->size - offset)
        return CN_ERANGE;
    memcpy(data, frame->data + offset, size);
    return CN_OK;
}

// Returns a source of the frame's present size. The frame is borrowed as long as the source is
// used.
static inline struct cn_update_source frame_source(struct cn_buffer *frame)
{
    return (struct cn_update_source){read_frame, frame, frame->size};
}
