#include "runtime/update/update.h"

#include <stdlib.h>

#include "runtime/port/crypto.h"
#include "runtime/update/update_block.h"
#include "runtime/update/update_frame.h"

#define CRC_SIZE 2 // the low half of a CRC-32C

static size_t block_count(const struct cn_tensor_info *tensor, size_t done)
{
    size_t left = tensor->count - done;

    return left < CN_UPDATE_BLOCK_COUNT ? left : CN_UPDATE_BLOCK_COUNT;
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

static cn_err check_values(const float *values, size_t count)
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

static size_t encode_block(const struct cn_update_rule *rule, bool is_sparse, const float *values,
                           size_t count, struct cn_update_pick *pick, float *decoded,
                           uint8_t *block)
{
    if (is_sparse)
        return cn_update_sparse_encode(values, count, rule->value_bits, pick, decoded, block);
    if (rule->mode == CN_UPDATE_RAW32)
        return cn_update_dense_encode_raw(values, count, decoded, block);
    return cn_update_dense_encode_q8(values, count, decoded, block);
}

static cn_err encode_tensor(const struct cn_update_rule *rule, const struct cn_tensor_info *tensor,
                            const float *values, struct cn_update_pick *pick, float *decoded,
                            struct cn_buffer *out)
{
    bool is_sparse = cn_update_is_sparse(rule, tensor);

    for (size_t done = 0; done < tensor->count; done += CN_UPDATE_BLOCK_COUNT) {
        uint8_t block[CN_UPDATE_BLOCK_SIZE + CRC_SIZE];
        size_t start = tensor->offset + done;
        size_t size = encode_block(rule, is_sparse, values + start, block_count(tensor, done), pick,
                                   decoded + start, block);
        cn_err err;

        cn_put_u16(block + size, (uint16_t)cn_crc32c(0, block, size));
        err = cn_buffer_append(out, block, size + CRC_SIZE);
        if (err)
            return err;
    }
    return CN_OK;
}

static cn_err encode_tensors(const struct cn_update_rule *rule, const struct cn_layout *layout,
                             const float *values, float *decoded, struct cn_buffer *out)
{
    struct cn_update_pick *picks = calloc(layout->tensor_count + 1, sizeof(*picks));
    cn_err err = CN_OK;

    if (!picks)
        return CN_ENOMEM;
    if (rule->mode == CN_UPDATE_TOPK)
        err = cn_update_select(rule, layout, values, picks);
    for (size_t t = 0; t < layout->tensor_count && !err; t++)
        err = encode_tensor(rule, &layout->tensors[t], values, &picks[t], decoded, out);
    free(picks);
    return err;
}

cn_err cn_update_encode(const struct cn_update_header *header, const struct cn_layout *layout,
                        const float *values, float *decoded, struct cn_buffer *out)
{
    size_t start = out->size;
    uint8_t head[CN_UPDATE_HEADER_SIZE];
    uint8_t digest[CN_DIGEST_SIZE];
    size_t head_size;
    cn_err err;

    if (layout->total > UINT32_MAX) // the counts of a histogram
        return CN_ERANGE;
    err = cn_update_frame_put(header, layout->total, head, &head_size);
    if (err)
        return err;
    err = check_values(values, layout->total);
    if (err)
        return err;
    err = cn_buffer_append(out, head, head_size);
    if (err)
        return err;
    err = encode_tensors(&header->rule, layout, values, decoded, out);
    if (!err) {
        cn_crypto_digest(out->data + start, out->size - start, digest);
        err = cn_buffer_append(out, digest, sizeof(digest));
    }
    if (err)
        out->size = start;
    return err;
}

static cn_err decode_block(const struct cn_update_rule *rule, bool is_sparse, const uint8_t *bytes,
                           size_t size, size_t count, float *values, size_t *used)
{
    if (is_sparse)
        return cn_update_sparse_decode(bytes, size, count, rule->value_bits, values, used);
    if (rule->mode == CN_UPDATE_RAW32)
        return cn_update_dense_decode_raw(bytes, size, count, values, used);
    return cn_update_dense_decode_q8(bytes, size, count, values, used);
}

// Decodes one block and its CRC.
static cn_err get_block(const struct cn_update_rule *rule, bool is_sparse, const uint8_t *bytes,
                        size_t size, size_t count, float *values, size_t *used)
{
    cn_err err = decode_block(rule, is_sparse, bytes, size, count, values, used);

    if (err)
        return err;
    if (size - *used < CRC_SIZE)
        return CN_EFORMAT;
    if (cn_get_u16(bytes + *used) != (uint16_t)cn_crc32c(0, bytes, *used))
        return CN_EDIGEST;
    *used += CRC_SIZE;
    return CN_OK;
}

static cn_err get_tensor(const struct cn_update_rule *rule, const struct cn_tensor_info *tensor,
                         const uint8_t *bytes, size_t size, struct cn_diag *diag,
                         cn_update_visit *visit, void *context, size_t *used)
{
    bool is_sparse = cn_update_is_sparse(rule, tensor);

    *used = 0;
    for (size_t done = 0; done < tensor->count; done += CN_UPDATE_BLOCK_COUNT) {
        float values[CN_UPDATE_BLOCK_COUNT];
        size_t count = block_count(tensor, done);
        size_t block_size;
        cn_err err =
            get_block(rule, is_sparse, bytes + *used, size - *used, count, values, &block_size);

        if (err) {
            cn_diag_add(diag, "update: block %zu of tensor %s: %s", done / CN_UPDATE_BLOCK_COUNT,
                        tensor->name ? tensor->name : "?", cn_err_text(err));
            return err;
        }
        *used += block_size;
        err = visit(context, tensor->offset + done, values, count);
        if (err)
            return err;
    }
    return CN_OK;
}

// Reads all of a frame but its digest.
static cn_err walk(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                   struct cn_diag *diag, struct cn_update_header *header, cn_update_visit *visit,
                   void *context)
{
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

        err = get_tensor(&header->rule, &layout->tensors[t], frame + position, size - position,
                         diag, visit, context, &used);
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

cn_err cn_update_check(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                       struct cn_diag *diag, struct cn_update_header *header)
{
    struct cn_update_header found;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = walk(frame, size, layout, diag, &found, ignore, NULL);

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

cn_err cn_update_decode(const uint8_t *frame, size_t size, const struct cn_layout *layout,
                        cn_update_visit *visit, void *context)
{
    struct cn_update_header header;

    return walk(frame, size, layout, NULL, &header, visit, context);
}

static cn_err add(void *context, size_t offset, const float *values, size_t count)
{
    float *to = (float *)context + offset;

    for (size_t i = 0; i < count; i++)
        to[i] += values[i];
    return CN_OK;
}

cn_err cn_update_apply(const uint8_t *frame, size_t size, const struct cn_layout *layout, float *to)
{
    return cn_update_decode(frame, size, layout, add, to);
}
