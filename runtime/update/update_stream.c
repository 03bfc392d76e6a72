#include "runtime/update/update_stream.h"

#include <assert.h>

#include "runtime/port/crypto.h"
#include "runtime/update/update_block.h"
#include "runtime/update/update_frame.h"

_Static_assert(CN_UPDATE_STREAM_COUNT == CN_UPDATE_BLOCK_COUNT_MAX, "a piece is a block");

struct making {
    const struct cn_update_header *header;
    const struct cn_layout *layout;
    size_t tensor; // of the next piece
    const struct cn_update_stream *stream;
};

static const struct cn_tensor_info *tensor_at(struct making *making, size_t offset)
{
    const struct cn_layout *layout = making->layout;

    while (layout->tensors[making->tensor].offset + layout->tensors[making->tensor].count <= offset)
        making->tensor++;
    return &layout->tensors[making->tensor];
}

// Rounds values to what a snapshot of the version decodes to. Blocks of a snapshot consist of
// groups that are rounded alone, so a piece may have several of its blocks.
static cn_err round_piece(const struct making *making, const struct cn_tensor_info *tensor,
                          float *values, size_t count)
{
    const struct cn_update_header snapshot = {.rule = {.mode = CN_UPDATE_Q8},
                                              .snapshot = true,
                                              .leave_staying = making->header->leave_staying};
    uint8_t block[CN_UPDATE_BLOCK_SIZE];
    float rounded[CN_UPDATE_STREAM_COUNT];
    cn_err err = cn_update_check_values(values, count);

    if (err || cn_update_kind_of(&snapshot, tensor) != CN_UPDATE_KIND_Q8)
        return err;
    (void)cn_update_q8_encode(values, count, rounded, block);
    memcpy(values, rounded, count * sizeof(*values));
    return CN_OK;
}

static cn_err change_piece(const struct making *making, const struct cn_tensor_info *tensor,
                           const float *change, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] += change[i];
        if (tensor->variance && values[i] < 0)
            values[i] = 0;
    }
    return making->header->rounded ? round_piece(making, tensor, values, count) : CN_OK;
}

static cn_err make_piece(void *context, size_t offset, const float *decoded, size_t count)
{
    struct making *making = context;
    const struct cn_update_stream *stream = making->stream;
    const struct cn_tensor_info *tensor = tensor_at(making, offset);
    bool replaces = making->header->snapshot &&
                    cn_update_kind_of(making->header, tensor) != CN_UPDATE_KIND_NONE;
    float values[CN_UPDATE_STREAM_COUNT];
    cn_err err = CN_OK;

    assert(count <= CN_UPDATE_STREAM_COUNT);
    if (replaces)
        memcpy(values, decoded, count * sizeof(*values));
    else
        err = stream->read ? stream->read(stream->context, offset, values, count) : CN_ESTALE;
    if (!err && !making->header->snapshot)
        err = change_piece(making, tensor, decoded, values, count);
    if (!err && stream->take)
        err = stream->take(stream->context, offset, values, count);
    return err;
}

cn_err cn_update_stream(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                        const struct cn_update_stream *stream)
{
    struct cn_update_header header;
    struct making making = {.header = &header, .layout = layout, .stream = stream};
    size_t used;
    cn_err err = cn_update_frame_get(frame, size, layout->total, NULL, &header, &used);

    return err ? err : cn_update_decode(frame, size, layout, make_piece, &making);
}

struct hashing {
    const struct cn_update_stream *stream;
    struct cn_sha256 sha;
};

static cn_err read_on(void *context, size_t offset, float *values, size_t count)
{
    struct hashing *hashing = context;

    return hashing->stream->read(hashing->stream->context, offset, values, count);
}

static cn_err hash(void *context, size_t offset, const float *values, size_t count)
{
    struct hashing *hashing = context;
    const struct cn_update_stream *stream = hashing->stream;

    cn_sha256_add(&hashing->sha, values, count * sizeof(*values));
    return stream->take ? stream->take(stream->context, offset, values, count) : CN_OK;
}

cn_err cn_update_stream_digest(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                               const struct cn_version_header *header,
                               const struct cn_update_stream *stream,
                               uint8_t digest[CN_DIGEST_SIZE])
{
    struct hashing hashing = {.stream = stream};
    const struct cn_update_stream through = {stream->read ? read_on : NULL, hash, &hashing};
    uint8_t bytes[CN_VERSION_HEADER_SIZE];
    cn_err err;

    cn_version_put_header(header, bytes);
    cn_sha256_init(&hashing.sha);
    cn_sha256_add(&hashing.sha, bytes, sizeof(bytes));
    err = cn_update_stream(frame, size, layout, &through);
    cn_sha256_finish(&hashing.sha, digest);
    return err;
}
