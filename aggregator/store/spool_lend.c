// Chunks that one board of a group lends to another for the same frame. Lent chunks are not
// verified: the lender may have sent anything. So chunks that the borrower sends itself replace
// them. If the complete frame has the wrong digest, all lent chunks are discarded, and only those.
#include "aggregator/store/spool_lend.h"

#include <stdlib.h>
#include <string.h>

#define COPIED_AT_ONCE (64 * 1024)

static bool has_bit(const uint8_t *bits, uint32_t index)
{
    return bits[index / 8] >> (index % 8) & 1;
}

static void flip_bit(uint8_t *bits, uint32_t index)
{
    bits[index / 8] = (uint8_t)(bits[index / 8] ^ 1u << (index % 8));
}

// Says whether `from` has the chunk and `to` lacks it.
static bool is_wanted(const struct cn_spooled *from, const struct cn_spooled *to, uint32_t index)
{
    return has_bit(from->bitmap, index) && !has_bit(to->bitmap, index);
}

static cn_err copy(const struct cn_spool_config *config, const struct cn_spooled *from,
                   struct cn_spooled *to, uint64_t offset, uint64_t size)
{
    uint8_t *bytes = malloc(COPIED_AT_ONCE);
    cn_err err = bytes ? CN_OK : CN_ENOMEM;

    while (!err && size) {
        size_t part = size < COPIED_AT_ONCE ? (size_t)size : COPIED_AT_ONCE;

        err = config->store->ops->read(from->file, offset, bytes, part);
        if (!err)
            err = config->store->ops->write(to->file, offset, bytes, part);
        offset += part;
        size -= part;
    }
    free(bytes);
    return err;
}

// Marks chunks as received and lent. They also count as saved, because the files of the lender's
// parts hold them.
static void take(struct cn_spooled *to, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        struct cn_spool_part *part = &to->parts[i / CN_SPOOL_PART];

        flip_bit(to->bitmap, i);
        flip_bit(to->lent, i);
        part->received++;
        part->saved++;
    }
    to->received += end - first;
    to->lent_count += end - first;
    while (to->first_missing < to->chunk_count && has_bit(to->bitmap, to->first_missing))
        to->first_missing++;
}

cn_err cn_spool_lend(const struct cn_spool_config *config, const struct cn_spooled *from,
                     struct cn_spooled *to)
{
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && i < to->chunk_count;) {
        uint32_t first = i;

        while (i < to->chunk_count && is_wanted(from, to, i))
            i++;
        if (i > first) {
            uint64_t begin = (uint64_t)first * config->chunk_size;
            uint64_t end = (uint64_t)i * config->chunk_size;

            if (end > to->declared.size)
                end = to->declared.size;
            err = copy(config, from, to, begin, end - begin);
            if (!err)
                take(to, first, i);
        }
        while (i < to->chunk_count && !is_wanted(from, to, i))
            i++;
    }
    return err;
}

void cn_spool_own(struct cn_spooled *upload, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; upload->lent_count && i < first + count; i++) {
        if (!has_bit(upload->lent, i))
            continue;
        flip_bit(upload->lent, i);
        upload->lent_count--;
        upload->parts[i / CN_SPOOL_PART].saved--;
    }
}

bool cn_spool_give_back(struct cn_spooled *upload)
{
    bool any = upload->lent_count > 0;

    for (uint32_t i = 0; upload->lent_count && i < upload->chunk_count; i++) {
        struct cn_spool_part *part = &upload->parts[i / CN_SPOOL_PART];

        if (!has_bit(upload->lent, i))
            continue;
        flip_bit(upload->lent, i);
        flip_bit(upload->bitmap, i);
        part->received--;
        part->saved--;
        upload->received--;
        upload->lent_count--;
        if (i < upload->first_missing)
            upload->first_missing = i;
    }
    return any;
}
