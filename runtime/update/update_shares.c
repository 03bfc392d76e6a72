#include "runtime/update/update_shares.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/update/update_block.h"
#include "runtime/update/update_frame.h"

_Static_assert(CN_UPDATE_SHARES_COUNTS == 1 + CN_UPDATE_CODE_COUNT, "a count for each code");

enum count { NOT_FINITE, CODES };

// Returns a clipped copy of the values, or NULL where none is above the limit.
static cn_err clip_values(const struct cn_layout *layout, const float *values, float **clipped)
{
    *clipped = NULL;
    if (cn_update_check_values(values, layout->total) != CN_ERANGE)
        return CN_OK;
    *clipped = malloc((layout->total + 1) * sizeof(**clipped));
    if (!*clipped)
        return CN_ENOMEM;
    for (size_t i = 0; i < layout->total; i++)
        (*clipped)[i] = cn_update_clip(values[i]);
    return CN_OK;
}

bool cn_update_shares_have_ties(const struct cn_update_share *share)
{
    return share->header->rule.mode == CN_UPDATE_TOPK;
}

cn_err cn_update_shares_count(const struct cn_update_share *share, const float *values,
                              int64_t counts[CN_UPDATE_SHARES_COUNTS])
{
    float *clipped;
    cn_err err = clip_values(share->own, values, &clipped);

    memset(counts, 0, CN_UPDATE_SHARES_COUNTS * sizeof(*counts));
    counts[NOT_FINITE] = cn_update_check_values(values, share->own->total) == CN_EDIVERGED;
    if (!err && !counts[NOT_FINITE] && cn_update_shares_have_ties(share))
        err = cn_update_select_count(share, clipped ? clipped : values, counts + CODES);
    free(clipped);
    return err;
}

cn_err cn_update_shares_ties(const struct cn_update_share *share, const float *values,
                             const int64_t counts[CN_UPDATE_SHARES_COUNTS], int64_t *equal)
{
    float *clipped;
    cn_err err = clip_values(share->own, values, &clipped);

    memset(equal, 0, share->whole->tensor_count * sizeof(*equal));
    if (!err && !counts[NOT_FINITE])
        err = cn_update_select_ties(share, clipped ? clipped : values, counts + CODES, equal);
    free(clipped);
    return err;
}

static cn_err put_tensors(const struct cn_update_share *share, const struct cn_update_pick *picks,
                          const float *values, float *next, struct cn_update_blocks *blocks,
                          int64_t *sizes)
{
    cn_err err = CN_OK;

    for (size_t t = 0; !err && t < share->own->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &share->own->tensors[t];
        struct cn_buffer *out = share->owned[t] ? &blocks->owned : &blocks->others;
        size_t before = out->size;

        err = cn_update_put_tensor(share->header, tensor, picks[t], values + tensor->offset, false,
                                   next + tensor->offset, out);
        if (share->owned[t])
            sizes[share->places[t]] = (int64_t)(out->size - before);
    }
    return err;
}

cn_err cn_update_shares_encode(const struct cn_update_share *share, const float *values,
                               const int64_t counts[CN_UPDATE_SHARES_COUNTS], const int64_t *equal,
                               float *next, struct cn_update_blocks *blocks, int64_t *sizes)
{
    const struct cn_layout *own = share->own;
    struct cn_update_pick *picks = calloc(own->tensor_count + 1, sizeof(*picks));
    float *clipped = NULL;
    cn_err err = picks ? CN_OK : CN_ENOMEM;

    memset(sizes, 0, share->whole->tensor_count * sizeof(*sizes));
    if (!err && counts[NOT_FINITE])
        err = CN_EDIVERGED;
    if (!err && share->whole->total > UINT32_MAX) // the histogram counts in uint32_t
        err = CN_ERANGE;
    if (!err)
        err = clip_values(own, values, &clipped);
    if (!err && cn_update_shares_have_ties(share))
        err = cn_update_select_own(share, clipped ? clipped : values, counts + CODES, equal, picks);
    if (!err)
        err = put_tensors(share, picks, clipped ? clipped : values, next, blocks, sizes);
    for (size_t i = 0; !err && i < own->total; i++)
        next[i] = values[i] - next[i];
    free(clipped);
    free(picks);
    return err;
}

static int64_t largest_size(const struct cn_tensor_info *tensor)
{
    return (int64_t)(4 * tensor->count + 16 * (tensor->count / CN_UPDATE_BLOCK_COUNT + 1));
}

cn_err cn_update_shares_begin(const struct cn_update_share *share, const int64_t *sizes,
                              struct cn_buffer *frame, size_t *first)
{
    const struct cn_layout *whole = share->whole;
    uint8_t head[CN_UPDATE_HEADER_SIZE];
    size_t size = 0;
    cn_err err = cn_update_frame_put(share->header, whole->total, head, first);

    for (size_t t = 0; !err && t < whole->tensor_count; t++) {
        if (sizes[t] < 0 || sizes[t] > largest_size(&whole->tensors[t]))
            err = CN_EFORMAT;
        else
            size += (size_t)sizes[t];
    }
    if (!err)
        err = cn_buffer_resize(frame, *first + size + CN_DIGEST_SIZE);
    if (!err)
        memcpy(frame->data, head, *first);
    return err;
}

size_t cn_update_shares_compare(const struct cn_update_share *share, const struct cn_buffer *others,
                                const int64_t *sizes, const struct cn_buffer *frame, size_t first)
{
    size_t at = first, of_others = 0, whole = 0;

    for (size_t t = 0; t < share->own->tensor_count; t++) {
        size_t place = share->places[t], size = (size_t)sizes[place];

        for (; whole < place; whole++)
            at += (size_t)sizes[whole];
        if (share->owned[t])
            continue;
        if (size > others->size - of_others ||
            (size > 0 && memcmp(frame->data + at, others->data + of_others, size) != 0))
            return place;
        of_others += size;
    }
    return of_others == others->size ? SIZE_MAX : whole;
}

void cn_update_shares_end(struct cn_buffer *frame)
{
    size_t size = frame->size - CN_DIGEST_SIZE;

    cn_crypto_digest(frame->data, size, frame->data + size);
}
