#include "transport/transfer/upload_status.h"

static bool overlap(const struct cn_chunk_range *a, const struct cn_chunk_range *b)
{
    return a->first < b->first + b->count && b->first < a->first + a->count;
}

bool cn_upload_status_lacks(const struct cn_upload_status *status,
                            const struct cn_chunk_range *chunks)
{
    for (uint32_t i = 0; i < status->missing_count; i++) {
        if (overlap(&status->missing[i], chunks))
            return true;
    }
    return false;
}

void cn_upload_status_mark(const struct cn_upload_status *status, uint32_t first, uint8_t *bits)
{
    uint32_t next = 0;

    for (uint32_t chunk = first; chunk < status->known; chunk++) {
        while (next < status->missing_count &&
               status->missing[next].first + status->missing[next].count <= chunk)
            next++;
        if (next == status->missing_count || chunk < status->missing[next].first)
            bits[chunk / 8] |= (uint8_t)(1u << (chunk % 8));
        else
            bits[chunk / 8] &= (uint8_t) ~(1u << (chunk % 8));
    }
}
