// Any bytes as an update: refused, or finite values of exactly the layout's size. The digest is
// made to fit for a second try; a block is decoded before its CRC is looked at.
#include "runtime/update/update_cursor.h"
#include "tests/fuzz/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cn_tensor_info tensors[] = {
    {.name = (char *)"matrix", .class = CN_TENSOR_PARAM, .offset = 0, .count = 1500},
    {.name = (char *)"bias", .class = CN_TENSOR_PARAM, .offset = 1500, .count = 4},
    {.name = (char *)"mean", .class = CN_TENSOR_STAT, .offset = 1504, .count = 4},
};
static const struct cn_layout layout = {.tensors = tensors, .tensor_count = 3, .total = 1508};

static cn_err visit(void *context, size_t offset, const float *values, size_t count)
{
    size_t *visited = context;

    if (offset != *visited || count > layout.total - offset)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] >= -CN_UPDATE_VALUE_MAX && values[i] <= CN_UPDATE_VALUE_MAX))
            abort();
    }
    *visited += count;
    return CN_OK;
}

struct bytes {
    const uint8_t *data;
    size_t size;
};

static cn_err read_bytes(void *context, uint64_t offset, void *data, size_t size)
{
    const struct bytes *bytes = context;

    if (offset > bytes->size || size > bytes->size - offset)
        abort();
    memcpy(data, bytes->data + offset, size);
    return CN_OK;
}

// Reads the frame in parts that are no blocks. Returns whether all values came.
static bool read_by_cursor(const uint8_t *frame, size_t size)
{
    struct bytes bytes = {frame, size};
    const struct cn_update_source source = {read_bytes, &bytes, size};
    struct cn_update_cursor *cursor;
    float values[100];
    cn_err err = cn_update_cursor_open(&source, &layout, &cursor);

    for (size_t done = 0; done < layout.total && !err; done += 100) {
        size_t count = layout.total - done < 100 ? layout.total - done : 100;

        err = cn_update_cursor_next(cursor, values, count);
        for (size_t i = 0; i < count && !err; i++)
            if (!(values[i] >= -CN_UPDATE_VALUE_MAX && values[i] <= CN_UPDATE_VALUE_MAX))
                abort();
    }
    cn_update_cursor_close(cursor);
    return !err;
}

static void try_frame(const uint8_t *frame, size_t size)
{
    struct cn_update_header header;
    struct cn_diag diag;
    size_t visited = 0;
    cn_err err;

    cn_diag_init(&diag);
    bool read = read_by_cursor(frame, size);
    err = cn_update_check(frame, size, &layout, &diag, &header);
    if (err) {
        if (diag.count == 0)
            abort();
        // Decoding is total too; what it visited before the error was within the limits.
        (void)!cn_update_decode(frame, size, &layout, visit, &visited);
        return;
    }
    if (cn_update_decode(frame, size, &layout, visit, &visited) || visited != layout.total)
        abort();
    if (read == (header.snapshot || header.rounded)) // a cursor takes changes only, and all of them
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return try_sealed(data, size, try_frame);
}
