#include "runtime/update/update.h"

#include <stdlib.h>

#include "runtime/port/crypto.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update_block.h"
#include "runtime/update/update_frame.h"

#define CRC_SIZE 2 // the low half of a CRC-32C

// Kinds of blocks by mode: of large trained tensors, of small trained tensors, of statistics.
static const enum cn_update_kind kinds[][3] = {
    [CN_UPDATE_RAW32] = {CN_UPDATE_KIND_RAW, CN_UPDATE_KIND_RAW, CN_UPDATE_KIND_RAW},
    [CN_UPDATE_Q8] = {CN_UPDATE_KIND_Q8, CN_UPDATE_KIND_Q8, CN_UPDATE_KIND_Q8},
    [CN_UPDATE_TOPK] = {CN_UPDATE_KIND_SPARSE, CN_UPDATE_KIND_Q8, CN_UPDATE_KIND_Q8},
    [CN_UPDATE_BF16] = {CN_UPDATE_KIND_BF16, CN_UPDATE_KIND_BF16, CN_UPDATE_KIND_BF16},
    [CN_UPDATE_Q4] = {CN_UPDATE_KIND_Q4, CN_UPDATE_KIND_Q8, CN_UPDATE_KIND_Q8},
    [CN_UPDATE_SIGN] = {CN_UPDATE_KIND_SIGN, CN_UPDATE_KIND_Q8, CN_UPDATE_KIND_Q8},
    [CN_UPDATE_AUTO] = {CN_UPDATE_KIND_NONE, CN_UPDATE_KIND_NONE, CN_UPDATE_KIND_NONE},
    [CN_UPDATE_SKIP] = {CN_UPDATE_KIND_NONE, CN_UPDATE_KIND_NONE, CN_UPDATE_KIND_NONE},
};

// Encoders and decoders of the dense kinds of blocks.
static const struct {
    size_t (*encode)(const float *values, size_t count, float *decoded, uint8_t *block);
    cn_err (*decode)(const uint8_t *bytes, size_t size, size_t count, float *values, size_t *used);
} dense[] = {
    [CN_UPDATE_KIND_RAW] = {cn_update_raw_encode, cn_update_raw_decode},
    [CN_UPDATE_KIND_BF16] = {cn_update_bf16_encode, cn_update_bf16_decode},
    [CN_UPDATE_KIND_Q8] = {cn_update_q8_encode, cn_update_q8_decode},
    [CN_UPDATE_KIND_Q4] = {cn_update_q4_encode, cn_update_q4_decode},
    [CN_UPDATE_KIND_SIGN] = {cn_update_sign_encode, cn_update_sign_decode},
};

enum cn_update_kind cn_update_kind_of(const struct cn_update_header *header,
                                      const struct cn_tensor_info *tensor)
{
    if (header->leave_staying && tensor->stays)
        return CN_UPDATE_KIND_NONE;
    // Rounding must not wipe out small statistics or biases.
    if (header->snapshot &&
        (tensor->class == CN_TENSOR_STAT || tensor->count < CN_UPDATE_SMALL_COUNT))
        return CN_UPDATE_KIND_RAW;
    if (tensor->class != CN_TENSOR_STAT) {
        enum cn_update_mode mode = header->rule.mode;
        bool small = tensor->count < CN_UPDATE_SMALL_COUNT;

        if (small && header->small_signs && (mode == CN_UPDATE_TOPK || mode == CN_UPDATE_SIGN))
            return CN_UPDATE_KIND_SIGN;
        return kinds[mode][small];
    }
    return header->leave_statistics ? CN_UPDATE_KIND_NONE : kinds[header->rule.mode][2];
}

size_t cn_update_block_count(const struct cn_update_rule *rule, const struct cn_tensor_info *tensor,
                             size_t done)
{
    bool thin = rule->mode == CN_UPDATE_TOPK && rule->density < CN_UPDATE_BLOCK_DENSITY;
    size_t most = thin ? CN_UPDATE_BLOCK_COUNT_MAX : CN_UPDATE_BLOCK_COUNT;
    size_t left = tensor->count - done;

    return left < most ? left : most;
}

// Raw blocks are the largest; the others need at most 16 bytes beside their coordinates.
size_t cn_update_size_max(const struct cn_layout *layout)
{
    size_t size = CN_UPDATE_HEADER_SIZE + CN_DIGEST_SIZE;

    for (size_t t = 0; t < layout->tensor_count; t++) {
        size_t count = layout->tensors[t].count;

        size += 4 * count + 16 * (count / CN_UPDATE_BLOCK_COUNT + 1);
    }
    return size;
}

cn_err cn_update_check_values(const float *values, size_t count)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = cn_update_bits(values[i]) & 0x7fffffffu;

        largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= 0x7f800000u)
        return CN_EDIVERGED;
    return largest > cn_update_bits(CN_UPDATE_VALUE_MAX) ? CN_ERANGE : CN_OK;
}

// Replaces decoded by values - decoded.
static void subtract(const float *values, float *decoded, size_t count)
{
    for (size_t i = 0; i < count; i++)
        decoded[i] = values[i] - decoded[i];
}

struct encoder {
    const struct cn_update_header *header;
    bool feedback;
    struct cn_buffer *out;
};

static cn_err put_block(const struct encoder *encoder, enum cn_update_kind kind,
                        const float *values, size_t count, struct cn_update_pick *pick,
                        float *decoded)
{
    uint8_t block[CN_UPDATE_BLOCK_SIZE + CRC_SIZE];
    size_t size;

    if (kind == CN_UPDATE_KIND_SPARSE)
        size = cn_update_sparse_encode(values, count, encoder->header->rule.value_bits, pick,
                                       decoded, block);
    else
        size = dense[kind].encode(values, count, decoded, block);
    cn_put_u16(block + size, (uint16_t)cn_crc32c(0, block, size));
    if (encoder->feedback)
        subtract(values, decoded, count);
    return cn_buffer_append(encoder->out, block, size + CRC_SIZE);
}

cn_err cn_update_put_tensor(const struct cn_update_header *header,
                            const struct cn_tensor_info *tensor, struct cn_update_pick pick,
                            const float *values, bool feedback, float *decoded,
                            struct cn_buffer *out)
{
    const struct encoder encoder = {header, feedback, out};
    enum cn_update_kind kind = cn_update_kind_of(header, tensor);
    size_t count;

    if (kind == CN_UPDATE_KIND_NONE) {
        memset(decoded, 0, tensor->count * sizeof(float));
        if (feedback)
            memcpy(decoded, values, tensor->count * sizeof(float));
        return CN_OK;
    }
    for (size_t done = 0; done < tensor->count; done += count) {
        cn_err err;

        count = cn_update_block_count(&header->rule, tensor, done);
        err = put_block(&encoder, kind, values + done, count, &pick, decoded + done);
        if (err)
            return err;
    }
    return CN_OK;
}

static cn_err put_tensors(const struct cn_update_header *header, const struct cn_layout *layout,
                          const float *values, bool feedback, float *decoded, struct cn_buffer *out)
{
    struct cn_update_pick *picks = calloc(layout->tensor_count + 1, sizeof(*picks));
    cn_err err = CN_OK;

    if (!picks)
        return CN_ENOMEM;
    if (header->rule.mode == CN_UPDATE_TOPK)
        err = cn_update_select(header, layout, values, picks);
    for (size_t t = 0; t < layout->tensor_count && !err; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        err = cn_update_put_tensor(header, tensor, picks[t], values + tensor->offset, feedback,
                                   decoded + tensor->offset, out);
    }
    free(picks);
    return err;
}

cn_err cn_update_encode_all(const struct cn_update_header *header, const struct cn_layout *layout,
                            const float *values, bool feedback, float *decoded,
                            struct cn_buffer *out)
{
    size_t start = out->size;
    uint8_t head[CN_UPDATE_HEADER_SIZE];
    uint8_t digest[CN_DIGEST_SIZE];
    size_t head_size;
    cn_err err;

    if (layout->total > UINT32_MAX) // the histogram counts in uint32_t
        return CN_ERANGE;
    err = cn_update_frame_put(header, layout->total, head, &head_size);
    if (err)
        return err;
    err = cn_update_check_values(values, layout->total);
    if (err)
        return err;
    err = cn_buffer_append(out, head, head_size);
    if (err)
        return err;
    err = put_tensors(header, layout, values, feedback, decoded, out);
    if (!err) {
        cn_crypto_digest(out->data + start, out->size - start, digest);
        err = cn_buffer_append(out, digest, sizeof(digest));
    }
    if (err)
        out->size = start;
    return err;
}

cn_err cn_update_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, float *decoded, struct cn_buffer *out)
{
    return cn_update_encode_all(header, layout, values, false, decoded, out);
}

static cn_err check_crc(const uint8_t *bytes, size_t size, size_t *used)
{
    if (size - *used < CRC_SIZE)
        return CN_EFORMAT;
    if (cn_get_u16(bytes + *used) != (uint16_t)cn_crc32c(0, bytes, *used))
        return CN_EDIGEST;
    *used += CRC_SIZE;
    return CN_OK;
}

cn_err cn_update_block_decode(const struct cn_update_header *header, enum cn_update_kind kind,
                              const uint8_t *bytes, size_t size, size_t count, float *values,
                              size_t *used)
{
    struct cn_update_few few;
    cn_err err;

    if (kind != CN_UPDATE_KIND_SPARSE) {
        err = dense[kind].decode(bytes, size, count, values, used);
        return err ? err : check_crc(bytes, size, used);
    }
    err = cn_update_sparse_decode(bytes, size, count, header->rule.value_bits, &few, used);
    if (!err)
        err = check_crc(bytes, size, used);
    if (err)
        return err;
    memset(values, 0, count * sizeof(*values));
    for (size_t i = 0; i < few.count; i++)
        values[few.index[i]] = few.values[i];
    return CN_OK;
}

struct decoder {
    const struct cn_update_header *header;
    struct cn_diag *diag;
    const struct cn_update_sink *sink; // receives decoded values
};

// Decodes a block whose coordinates start at offset in the row, and checks its CRC.
static cn_err get_all(const struct decoder *decoder, enum cn_update_kind kind, const uint8_t *bytes,
                      size_t size, size_t offset, size_t count, size_t *used)
{
    float values[CN_UPDATE_BLOCK_COUNT_MAX];
    cn_err err = cn_update_block_decode(decoder->header, kind, bytes, size, count, values, used);

    return err ? err : decoder->sink->visit(decoder->sink->context, offset, values, count);
}

static cn_err get_few(const struct decoder *decoder, const uint8_t *bytes, size_t size,
                      size_t offset, size_t count, size_t *used)
{
    const struct cn_update_sink *sink = decoder->sink;
    struct cn_update_few few;
    cn_err err =
        cn_update_sparse_decode(bytes, size, count, decoder->header->rule.value_bits, &few, used);

    if (!err)
        err = check_crc(bytes, size, used);
    if (!err)
        sink->few(sink->context, offset, few.index, few.values, few.count);
    return err;
}

// Visits zeros for a tensor that the frame leaves out.
static cn_err visit_zeros(const struct decoder *decoder, const struct cn_tensor_info *tensor)
{
    static const float zeros[CN_UPDATE_BLOCK_COUNT];
    const struct cn_update_sink *sink = decoder->sink;
    size_t count;

    for (size_t done = 0; done < tensor->count && !sink->few; done += count) {
        size_t left = tensor->count - done;
        cn_err err;

        count = left < CN_UPDATE_BLOCK_COUNT ? left : CN_UPDATE_BLOCK_COUNT;
        err = sink->visit(sink->context, tensor->offset + done, zeros, count);
        if (err)
            return err;
    }
    return CN_OK;
}

static cn_err get_tensor(const struct decoder *decoder, const struct cn_tensor_info *tensor,
                         const uint8_t *bytes, size_t size, size_t *used)
{
    enum cn_update_kind kind = cn_update_kind_of(decoder->header, tensor);
    size_t block = 0;
    size_t count;

    *used = 0;
    if (kind == CN_UPDATE_KIND_NONE)
        return visit_zeros(decoder, tensor);
    for (size_t done = 0; done < tensor->count; done += count, block++) {
        const uint8_t *at = bytes + *used;
        size_t left = size - *used, offset = tensor->offset + done, block_size;
        cn_err err;

        count = cn_update_block_count(&decoder->header->rule, tensor, done);
        err = kind == CN_UPDATE_KIND_SPARSE && decoder->sink->few
                  ? get_few(decoder, at, left, offset, count, &block_size)
                  : get_all(decoder, kind, at, left, offset, count, &block_size);
        if (err) {
            cn_diag_add(decoder->diag, "update: block %zu of tensor %s: %s", block,
                        tensor->name ? tensor->name : "?", cn_err_text(err));
            return err;
        }
        *used += block_size;
    }
    return CN_OK;
}

// Reads a whole frame except its digest.
static cn_err walk(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                   struct cn_diag *diag, struct cn_update_header *header,
                   const struct cn_update_sink *sink)
{
    const struct decoder decoder = {header, diag, sink};
    size_t position;
    cn_err err;

    if (size < CN_UPDATE_FIXED_SIZE + CN_DIGEST_SIZE) {
        cn_diag_add(diag, "update: %zu bytes, expected at least %d", size,
                    CN_UPDATE_FIXED_SIZE + CN_DIGEST_SIZE);
        return CN_EFORMAT;
    }
    size -= CN_DIGEST_SIZE;
    err = cn_update_frame_get(frame, size, layout->total, diag, header, &position);
    if (err)
        return err;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        size_t used;

        err = get_tensor(&decoder, &layout->tensors[t], frame + position, size - position, &used);
        if (err)
            return err;
        position += used;
    }
    if (position == size)
        return CN_OK;
    cn_diag_add(diag, "update: %zu bytes after the last block, expected none", size - position);
    return CN_EFORMAT;
}

static cn_err ignore(void *context, size_t offset, const float *values, size_t count)
{
    (void)context;
    (void)offset;
    (void)values;
    (void)count;
    return CN_OK;
}

static void ignore_few(void *context, size_t offset, const uint16_t *index, const float *values,
                       size_t count)
{
    (void)context;
    (void)offset;
    (void)index;
    (void)values;
    (void)count;
}

cn_err cn_update_check_few(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                           struct cn_diag *diag, struct cn_update_header *header,
                           const struct cn_update_sink *sink)
{
    struct cn_update_header found;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = walk(frame, size, layout, diag, &found, sink);

    if (err)
        return err;
    cn_crypto_digest(frame, size - CN_DIGEST_SIZE, digest);
    if (memcmp(digest, frame + size - CN_DIGEST_SIZE, CN_DIGEST_SIZE) != 0) {
        cn_diag_add(diag, "update: %s", cn_err_text(CN_EDIGEST));
        return CN_EDIGEST;
    }
    *header = found;
    return CN_OK;
}

cn_err cn_update_check(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                       struct cn_diag *diag, struct cn_update_header *header)
{
    const struct cn_update_sink sink = {ignore, ignore_few, NULL};

    return cn_update_check_few(frame, size, layout, diag, header, &sink);
}

cn_err cn_update_decode_few(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                            const struct cn_update_sink *sink)
{
    struct cn_update_header header;

    return walk(frame, size, layout, NULL, &header, sink);
}

cn_err cn_update_decode(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                        cn_update_visit *visit, void *context)
{
    const struct cn_update_sink sink = {visit, NULL, context};

    return cn_update_decode_few(frame, size, layout, &sink);
}

// Copies the tensors that a frame has.
static void take_sent(const struct cn_update_header *header, const struct cn_layout *layout,
                      const float *values, float *to)
{
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (cn_update_kind_of(header, tensor) != CN_UPDATE_KIND_NONE)
            memcpy(to + tensor->offset, values + tensor->offset, tensor->count * sizeof(*to));
    }
}

// Appends the frame of a snapshot and replaces weights by what it decodes to.
static cn_err put_snapshot(struct cn_update_header *header, const struct cn_layout *layout,
                           float *weights, struct cn_buffer *out)
{
    float *rounded = malloc((layout->total + 1) * sizeof(*rounded));
    cn_err err;

    if (!rounded)
        return CN_ENOMEM;
    header->weight = 1;
    header->rule = (struct cn_update_rule){.mode = CN_UPDATE_Q8};
    header->snapshot = true;
    err = cn_update_encode(header, layout, weights, rounded, out);
    if (!err)
        take_sent(header, layout, rounded, weights);
    free(rounded);
    return err;
}

cn_err cn_update_snapshot(uint64_t run, uint32_t round, const uint8_t parent[CN_DIGEST_SIZE],
                          const struct cn_layout *layout, float *weights, struct cn_buffer *out)
{
    struct cn_update_header header = {
        .run = run, .round = round, .leave_staying = cn_local_tensors_stay(layout)};

    memcpy(header.base, parent, CN_DIGEST_SIZE);
    return put_snapshot(&header, layout, weights, out);
}

static cn_err round_weights(const struct cn_update_header *frame, const struct cn_layout *layout,
                            float *weights)
{
    struct cn_update_header header = {
        .run = frame->run, .round = frame->round, .leave_staying = frame->leave_staying};
    struct cn_buffer unused;
    cn_err err;

    memcpy(header.base, frame->base, CN_DIGEST_SIZE);
    cn_buffer_init(&unused, cn_update_size_max(layout));
    err = put_snapshot(&header, layout, weights, &unused);
    cn_buffer_deinit(&unused);
    return err;
}

static cn_err add(void *context, size_t offset, const float *values, size_t count)
{
    float *to = (float *)context + offset;

    for (size_t i = 0; i < count; i++)
        to[i] += values[i];
    return CN_OK;
}

static cn_err replace(void *context, size_t offset, const float *values, size_t count)
{
    memcpy((float *)context + offset, values, count * sizeof(*values));
    return CN_OK;
}

// Replaces the tensors that a snapshot has. It has no sparse blocks.
static cn_err apply_snapshot(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                             float *to)
{
    const struct cn_update_sink sink = {replace, ignore_few, to};

    return cn_update_decode_few(frame, size, layout, &sink);
}

// Encoding may take more from a variance than there was: the version has zero there.
static void raise_variances(const struct cn_layout *layout, float *to)
{
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        float *values = to + tensor->offset;

        for (size_t i = 0; tensor->variance && i < tensor->count; i++)
            if (values[i] < 0)
                values[i] = 0;
    }
}

cn_err cn_update_apply(const uint8_t *frame, size_t size, const struct cn_layout *layout, float *to)
{
    struct cn_update_header header;
    size_t used;
    cn_err err = cn_update_frame_get(frame, size, layout->total, NULL, &header, &used);

    if (!err)
        err = header.snapshot ? apply_snapshot(frame, size, layout, to)
                              : cn_update_decode(frame, size, layout, add, to);
    if (!err && !header.snapshot)
        raise_variances(layout, to);
    return !err && header.rounded ? round_weights(&header, layout, to) : err;
}
