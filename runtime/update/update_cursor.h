// update_cursor.h - reads the values of a frame from first to last, some at a time.
//
// Several frames can thus be read side by side, in memory that does not grow with the model: about
// 200 KiB for each cursor. A cursor is total, as decoding is: any bytes give finite values, or an
// error. It does not check the digest at the frame's end. Threading: none.
#pragma once

#include "runtime/update/update.h"

// The bytes of a frame. read copies size bytes from offset; both lie within the frame.
struct cn_update_source {
    cn_err (*read)(void *context, uint64_t offset, void *data, size_t size);
    void *context;
    size_t size; // bytes of the frame
};

struct cn_update_cursor;

// Opens a cursor before the first value. Borrows layout and source->context until close. Returns
// CN_EFORMAT or CN_ERANGE for a header that no update of this layout has, CN_EFORMAT also for a
// snapshot and for a frame whose values are rounded, or an error of read.
cn_err cn_update_cursor_open(const struct cn_update_source *source, const struct cn_layout *layout,
                             struct cn_update_cursor **cursor);
void cn_update_cursor_close(struct cn_update_cursor *cursor);

// Moves the cursor back before the first value.
void cn_update_cursor_rewind(struct cn_update_cursor *cursor);

// Copies the next count values of the frame to values. count is at most the number of values that
// are left. Returns the errors of cn_update_decode, or of read. After an error only rewind and
// close are allowed.
cn_err cn_update_cursor_next(struct cn_update_cursor *cursor, float *values, size_t count);
