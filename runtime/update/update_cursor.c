#include "runtime/update/update_cursor.h"

#include <assert.h>
#include <stdlib.h>

#include "runtime/update/update_block.h"
#include "runtime/update/update_frame.h"

// Bytes of the frame in memory; at least a block with its CRC.
#define WINDOW_SIZE ((size_t)2 * CN_UPDATE_BLOCK_SIZE)

struct cn_update_cursor {
    struct cn_update_source source;
    const struct cn_layout *layout; // borrowed
    struct cn_update_header header;
    size_t first;       // offset of the first block in the frame
    size_t end;         // offset of the first byte after the last block
    size_t position;    // offset of the next block
    size_t window;      // offset of the bytes in memory
    size_t window_size; // number of the bytes in memory
    size_t tensor;      // index of the tensor that the next block belongs to
    size_t done;        // number of elements of that tensor before the next block
    size_t count;       // number of values of the decoded block
    size_t used;        // number of these values that were taken
    float values[CN_UPDATE_BLOCK_COUNT_MAX];
    uint8_t bytes[WINDOW_SIZE];
};

// Reads the bytes from position on into memory: a whole window, or the rest of the frame.
static cn_err fill(struct cn_update_cursor *cursor)
{
    size_t left = cursor->end - cursor->position;
    size_t wanted = left < CN_UPDATE_BLOCK_SIZE + 16 ? left : CN_UPDATE_BLOCK_SIZE + 16;
    size_t size = left < WINDOW_SIZE ? left : WINDOW_SIZE;

    if (cursor->position >= cursor->window &&
        cursor->position + wanted <= cursor->window + cursor->window_size)
        return CN_OK;
    cursor->window = cursor->position;
    cursor->window_size = 0; // until it is read
    cn_err err = cursor->source.read(cursor->source.context, cursor->position, cursor->bytes, size);
    if (!err)
        cursor->window_size = size;
    return err;
}

static cn_err read_header(struct cn_update_cursor *cursor)
{
    uint8_t head[CN_UPDATE_HEADER_SIZE];
    size_t size = cursor->end < sizeof(head) ? cursor->end : sizeof(head);
    cn_err err = cursor->source.read(cursor->source.context, 0, head, size);

    if (!err)
        err = cn_update_frame_get(head, size, cursor->layout->total, NULL, &cursor->header,
                                  &cursor->first);
    if (!err && (cursor->header.snapshot || cursor->header.rounded))
        err = CN_EFORMAT;
    return err;
}

cn_err cn_update_cursor_open(const struct cn_update_source *source, const struct cn_layout *layout,
                             struct cn_update_cursor **cursor)
{
    struct cn_update_cursor *opened;
    cn_err err;

    *cursor = NULL;
    if (source->size < CN_UPDATE_FIXED_SIZE + CN_DIGEST_SIZE)
        return CN_EFORMAT;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->source = *source;
    opened->layout = layout;
    opened->end = source->size - CN_DIGEST_SIZE;
    err = read_header(opened);
    if (err) {
        free(opened);
        return err;
    }
    cn_update_cursor_rewind(opened);
    *cursor = opened;
    return CN_OK;
}

void cn_update_cursor_close(struct cn_update_cursor *cursor)
{
    free(cursor);
}

void cn_update_cursor_rewind(struct cn_update_cursor *cursor)
{
    cursor->position = cursor->first;
    cursor->tensor = cursor->done = 0;
    cursor->count = cursor->used = 0;
}

// Decodes the next block, or sets zeros in its place for a tensor that the frame leaves out.
static cn_err next_block(struct cn_update_cursor *cursor)
{
    while (cursor->done == cursor->layout->tensors[cursor->tensor].count) {
        cursor->tensor++;
        cursor->done = 0;
    }
    const struct cn_tensor_info *tensor = &cursor->layout->tensors[cursor->tensor];
    enum cn_update_kind kind = cn_update_kind_of(&cursor->header, tensor);
    size_t used;
    cn_err err;

    cursor->count = cn_update_block_count(&cursor->header.rule, tensor, cursor->done);
    cursor->used = 0;
    cursor->done += cursor->count;
    if (kind == CN_UPDATE_KIND_NONE) {
        memset(cursor->values, 0, cursor->count * sizeof(*cursor->values));
        return CN_OK;
    }
    err = fill(cursor);
    if (!err)
        err = cn_update_block_decode(&cursor->header, kind,
                                     cursor->bytes + (cursor->position - cursor->window),
                                     cursor->window + cursor->window_size - cursor->position,
                                     cursor->count, cursor->values, &used);
    if (!err)
        cursor->position += used;
    return err;
}

// Says whether all values were taken.
static bool is_over(const struct cn_update_cursor *cursor)
{
    size_t tensor = cursor->tensor, done = cursor->done;

    while (tensor < cursor->layout->tensor_count && done == cursor->layout->tensors[tensor].count) {
        tensor++;
        done = 0;
    }
    return tensor == cursor->layout->tensor_count && cursor->used == cursor->count;
}

cn_err cn_update_cursor_next(struct cn_update_cursor *cursor, float *values, size_t count)
{
    while (count) {
        size_t left, taken;

        if (cursor->used == cursor->count) {
            assert(!is_over(cursor));
            cn_err err = next_block(cursor);
            if (err)
                return err;
        }
        left = cursor->count - cursor->used;
        taken = left < count ? left : count;
        memcpy(values, cursor->values + cursor->used, taken * sizeof(*values));
        cursor->used += taken;
        values += taken;
        count -= taken;
    }
    return is_over(cursor) && cursor->position != cursor->end ? CN_EFORMAT : CN_OK;
}
