#include "aggregator/store/spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool_bits.h"
#include "aggregator/store/spool_lend.h"
#include "aggregator/store/spool_name.h"
#include "aggregator/store/spool_parts.h"
#include "aggregator/store/spool_private.h"
#include "aggregator/store/spool_room.h"
#include "aggregator/store/spool_save.h"
#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "runtime/port/link.h"
#include "runtime/port/platform.h"

#define LEND_MS 10000 // least time until an upload is lent again: each time copies it
// Most chunks that one description looks at: 512 KiB of the bitmap. The board asks for the rest.
#define DESCRIBED_MAX (1u << 22)

static void free_upload(struct cn_spool *spool, struct cn_spooled *upload)
{
    struct cn_spooled **link = &spool->uploads;
    while (*link != upload)
        link = &(*link)->next;
    *link = upload->next;
    spool->used -= upload->declared.size;
    free(upload->bitmap);
    free(upload->lent);
    free(upload->parts);
    free(upload);
}

void cn_spool_drop(struct cn_spool *spool, struct cn_spooled *upload)
{
    struct cn_store_file *file = upload->file;
    cn_spool_parts_remove(&spool->config, upload);
    free_upload(spool, upload);
    spool->config.store->ops->abort(file);
}

// Frees the spool. What was not saved is lost.
static void discard(struct cn_spool *spool)
{
    while (spool->uploads) {
        struct cn_store_file *file = spool->uploads->file;
        free_upload(spool, spool->uploads);
        spool->config.store->ops->abort(file);
    }
    free(spool);
}

void cn_spool_close(struct cn_spool *spool)
{
    if (!spool)
        return;
    for (struct cn_spooled *upload = spool->uploads; upload; upload = upload->next)
        cn_spool_save_all(&spool->config, upload);
    discard(spool);
}

static struct cn_spooled *find_by_board(const struct cn_spool *spool, const char *board,
                                        const char *group)
{
    for (struct cn_spooled *upload = spool->uploads; upload; upload = upload->next)
        if (strcmp(upload->board, board) == 0 && (*board || strcmp(upload->group, group) == 0))
            return upload;
    return NULL;
}

static bool same_frame(const struct cn_declare_request *a, const struct cn_declare_request *b)
{
    return a->run == b->run && a->round == b->round && a->size == b->size &&
           memcmp(a->digest, b->digest, CN_DIGEST_SIZE) == 0 &&
           memcmp(a->base, b->base, CN_DIGEST_SIZE) == 0;
}

// The caller has checked that declared->size is at most frame_max.
static cn_err begin(struct cn_spool *spool, const char *board, const char *group,
                    const struct cn_declare_request *declared, struct cn_spooled **upload)
{
    uint64_t chunk_size = spool->config.chunk_size;
    uint64_t chunks = (declared->size + chunk_size - 1) / chunk_size;
    char name[CN_SPOOL_NAME_SIZE];
    if (chunks > UINT32_MAX)
        return CN_ERANGE;
    struct cn_spooled *begun = calloc(1, sizeof(*begun));
    if (!begun)
        return CN_ENOMEM;
    begun->chunk_count = (uint32_t)chunks;
    begun->bitmap = calloc(chunks / 8 + 1, 1);
    begun->lent = calloc(chunks / 8 + 1, 1);
    begun->parts = calloc(cn_spool_part_count(begun), sizeof(*begun->parts));
    begun->declared = *declared;
    begun->credit = CN_SPOOL_PART;
    begun->earned_ms = UINT64_MAX; // at the first look no time has passed
    snprintf(begun->board, sizeof(begun->board), "%s", board);
    snprintf(begun->group, sizeof(begun->group), "%s", group);
    cn_spool_name(declared->round, group, name);
    cn_err err = CN_ENOMEM;
    if (begun->bitmap && begun->lent && begun->parts)
        err = spool->config.store->ops->create(spool->config.store, name, &begun->file);
    if (err) {
        free(begun->bitmap);
        free(begun->lent);
        free(begun->parts);
        free(begun);
        return err;
    }
    begun->next = spool->uploads;
    spool->uploads = begun;
    spool->used += declared->size;
    *upload = begun;
    return CN_OK;
}

// Copies to an upload what other boards of the group have sent of the same frame. Chunks that
// cannot be copied are sent instead.
static void borrow(struct cn_spool *spool, struct cn_spooled *to, uint64_t now_ms)
{
    for (struct cn_spooled *from = spool->uploads; from; from = from->next) {
        if (from == to || !from->received || strcmp(from->group, to->group) != 0 ||
            !same_frame(&from->declared, &to->declared) ||
            (from->lent_ms && now_ms - from->lent_ms < LEND_MS))
            continue;
        from->lent_ms = now_ms;
        cn_err err = cn_spool_lend(&spool->config, from, to);
        if (err)
            cn_log(CN_LOG_DEBUG, "spool", "a part of %s is not lent: %s", to->group,
                   cn_err_text(err));
    }
}

cn_err cn_spool_declare(struct cn_spool *spool, const char *board, const char *group,
                        const struct cn_declare_request *declared, uint64_t now_ms,
                        struct cn_spooled **upload)
{
    *upload = NULL;
    uint64_t most = spool->config.frame_max;
    if (declared->run == CN_RUN_MEASUREMENT && most > CN_SPOOL_MEASUREMENT_MAX)
        most = CN_SPOOL_MEASUREMENT_MAX;
    if (declared->size == 0 || declared->size > most)
        return CN_ERANGE;
    struct cn_spooled *found = find_by_board(spool, board, group);
    uint64_t put_ms = now_ms, begun_ms = now_ms;
    if (found && (strcmp(found->group, group) != 0 || !same_frame(&found->declared, declared))) {
        if (!found->received && found->put_ms) { // another declaration alone is no progress
            put_ms = found->put_ms;
            begun_ms = found->begun_ms;
        }
        cn_spool_drop(spool, found);
        found = NULL;
    }
    if (!found) {
        cn_err err = cn_spool_make_room(spool, group, declared, now_ms);
        if (!err)
            err = begin(spool, board, group, declared, &found);
        if (err)
            return err;
    }
    if (!found->is_declared) {
        found->declared = *declared;
        found->is_declared = true;
        found->put_ms = put_ms;
        found->begun_ms = begun_ms;
        cn_message_upload_id(board, declared->run, declared->round, declared->digest, found->id);
        borrow(spool, found, now_ms);
    }
    if (!found->since_ms)
        found->since_ms = now_ms;
    *upload = found;
    return CN_OK;
}

struct cn_spooled *cn_spool_find(struct cn_spool *spool, const char *board, const char *group,
                                 const uint8_t id[CN_UPLOAD_ID_SIZE])
{
    struct cn_spooled *found = find_by_board(spool, board, group);
    return found && found->is_declared && strcmp(found->group, group) == 0 &&
                   memcmp(found->id, id, CN_UPLOAD_ID_SIZE) == 0
               ? found
               : NULL;
}

static bool has_chunk(const struct cn_spooled *upload, uint32_t index)
{
    return upload->bitmap[index / 8] >> (index % 8) & 1;
}

// Extends the newest range when the chunks follow it, so that an arrival in order is a single
// range.
static void note_arrival(struct cn_spooled *upload, uint32_t first, uint32_t count)
{
    uint32_t newest = (upload->recent_next + CN_RECENT_MAX - 1) % CN_RECENT_MAX;
    struct cn_chunk_range *range = &upload->recent[newest];
    if (upload->recent_count && first == range->first + range->count) {
        range->count += count;
        return;
    }
    upload->recent[upload->recent_next] = (struct cn_chunk_range){first, count};
    upload->recent_next = (upload->recent_next + 1) % CN_RECENT_MAX;
    if (upload->recent_count < CN_RECENT_MAX)
        upload->recent_count++;
}

static void mark(struct cn_spooled *upload, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        if (has_chunk(upload, i))
            continue;
        upload->bitmap[i / 8] = (uint8_t)(upload->bitmap[i / 8] | 1u << (i % 8));
        upload->received++;
        upload->parts[i / CN_SPOOL_PART].received++;
    }
    upload->first_missing =
        cn_spool_bits_find(upload->bitmap, false, upload->first_missing, upload->chunk_count);
    note_arrival(upload, first, count);
}

// Returns CN_ECONFLICT when data differs from the bytes that are already there, which were
// acknowledged.
static cn_err compare(struct cn_spool *spool, struct cn_spooled *upload, uint64_t offset,
                      const uint8_t *data, size_t size)
{
    uint8_t there[1024];
    while (size) {
        size_t part = size < sizeof(there) ? size : sizeof(there);
        cn_err err = spool->config.store->ops->read(upload->file, offset, there, part);
        if (err)
            return err;
        if (memcmp(there, data, part) != 0)
            return CN_ECONFLICT;
        offset += part;
        data += part;
        size -= part;
    }
    return CN_OK;
}

// Says whether the board itself has sent the chunk.
static bool is_own(const struct cn_spooled *upload, uint32_t index)
{
    return has_chunk(upload, index) && !(upload->lent[index / 8] >> (index % 8) & 1);
}

// Writes the chunks from index to end that the board has not sent yet, and compares the others.
// Each run of either kind is one access.
static cn_err write_missing(struct cn_spool *spool, struct cn_spooled *upload, uint32_t index,
                            uint32_t end, const uint8_t *data, size_t size)
{
    size_t chunk_size = spool->config.chunk_size;
    cn_err err = CN_OK;
    for (uint32_t i = index; !err && i < end;) {
        uint32_t first = i;
        bool there = is_own(upload, i);
        while (i < end && is_own(upload, i) == there)
            i++;
        size_t from = (first - index) * chunk_size, to = (i - index) * chunk_size;
        size_t part = (to < size ? to : size) - from;
        uint64_t offset = (uint64_t)first * chunk_size;
        if (there)
            err = compare(spool, upload, offset, data + from, part);
        else
            err = spool->config.store->ops->write(upload->file, offset, data + from, part);
    }
    return err;
}

cn_err cn_spool_put(struct cn_spool *spool, struct cn_spooled *upload, uint32_t index,
                    const uint8_t *data, size_t size, uint64_t now_ms)
{
    uint64_t chunk_size = spool->config.chunk_size;
    if (index >= upload->chunk_count || !size)
        return CN_ERANGE;
    uint64_t left = upload->declared.size - index * chunk_size;
    if (size > left || (size < left && size % chunk_size))
        return CN_ERANGE;
    uint32_t count = (uint32_t)((size + chunk_size - 1) / chunk_size);
    cn_err err = write_missing(spool, upload, index, index + count, data, size);
    if (err)
        return err;
    uint32_t last = (index + count - 1) / CN_SPOOL_PART;
    for (uint32_t i = index / CN_SPOOL_PART; i <= last; i++)
        if (upload->parts[i].saved == upload->parts[i].received)
            upload->parts[i].since_ms = now_ms;
    upload->put_ms = now_ms;
    uint32_t before = upload->received;
    cn_spool_own(upload, index, count);
    mark(upload, index, count);
    cn_spool_save_earn(upload, upload->received - before);
    // A complete upload is about to be decided, so its last part need not be saved.
    if (upload->parts[last].received == CN_SPOOL_PART && upload->received < upload->chunk_count)
        cn_spool_save_due(&spool->config, upload, now_ms);
    return CN_OK;
}

void cn_spool_describe(const struct cn_spooled *upload, uint32_t from, uint32_t max,
                       struct cn_upload_status *status)
{
    memcpy(status->id, upload->id, CN_UPLOAD_ID_SIZE);
    status->chunk_count = upload->chunk_count;
    status->received = upload->received;
    status->missing_count = 0;
    uint32_t index = from > upload->first_missing ? from : upload->first_missing;
    uint32_t end = upload->chunk_count;
    if (index < end && end - index > DESCRIBED_MAX)
        end = index + DESCRIBED_MAX;
    while (index < end && status->missing_count < max) {
        uint32_t first = cn_spool_bits_find(upload->bitmap, false, index, end);
        index = cn_spool_bits_find(upload->bitmap, true, first, end);
        if (index > first)
            status->missing[status->missing_count++] =
                (struct cn_chunk_range){first, index - first};
    }
    if (index < end)
        index = cn_spool_bits_find(upload->bitmap, false, index, end);
    status->known = index < end ? index : end;
    status->recent_count = upload->recent_count;
    for (uint32_t i = 0; i < upload->recent_count; i++)
        status->recent[i] =
            upload->recent[(upload->recent_next + CN_RECENT_MAX - upload->recent_count + i) %
                           CN_RECENT_MAX];
}

cn_err cn_spool_read(const struct cn_spool *spool, struct cn_spooled *upload, uint8_t **frame)
{
    *frame = NULL;
    if (upload->received < upload->chunk_count)
        return CN_EAGAIN;
    size_t size = (size_t)upload->declared.size;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return CN_ENOMEM;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = spool->config.store->ops->read(upload->file, 0, bytes, size);
    if (!err) {
        cn_crypto_digest(bytes, size, digest);
        if (memcmp(digest, upload->declared.digest, CN_DIGEST_SIZE) != 0)
            err = cn_spool_give_back(upload) ? CN_EAGAIN : CN_EDIGEST;
    }
    if (err) {
        free(bytes);
        return err;
    }
    *frame = bytes;
    return CN_OK;
}

static void drop_others(struct cn_spool *spool, const struct cn_spooled *kept)
{
    struct cn_spooled *next;
    for (struct cn_spooled *upload = spool->uploads; upload; upload = next) {
        next = upload->next;
        if (upload != kept && strcmp(upload->group, kept->group) == 0 &&
            upload->declared.round == kept->declared.round)
            cn_spool_drop(spool, upload);
    }
}

cn_err cn_spool_keep(struct cn_spool *spool, struct cn_spooled *upload)
{
    struct cn_store_file *file = upload->file;
    cn_err err = spool->config.store->ops->commit(file);
    cn_spool_parts_remove(&spool->config, upload);
    if (!err)
        drop_others(spool, upload);
    free_upload(spool, upload);
    return err;
}

// Says whether the upload advanced less than 1/64 in the last expiry_ms. A complete upload cannot
// advance.
static bool is_slow(const struct cn_spool *spool, struct cn_spooled *upload, uint64_t now_ms)
{
    if (upload->since_ms && now_ms - upload->since_ms <= spool->config.expiry_ms)
        return false;
    bool slow = upload->since_ms &&
                upload->received - upload->since_received < upload->chunk_count / 64 + 1;
    upload->since_ms = now_ms;
    upload->since_received = upload->received;
    return slow;
}

void cn_spool_expire(struct cn_spool *spool, uint32_t first, uint32_t last, uint64_t now_ms)
{
    struct cn_spooled *next;
    for (struct cn_spooled *upload = spool->uploads; upload; upload = next) {
        next = upload->next;
        uint32_t round = upload->declared.round;
        if (!upload->put_ms) // restored: its board has as much time as others
            upload->put_ms = upload->begun_ms = now_ms;
        if (!is_slow(spool, upload, now_ms) && round >= first && round <= last) {
            cn_spool_save_due(&spool->config, upload, now_ms);
            continue;
        }
        cn_log_within(cn_log_quota_of(&spool->dropped, upload->board), now_ms, CN_LOG_INFO, "spool",
                      "dropped an unfinished upload of %s for round %u", upload->board, round);
        cn_spool_drop(spool, upload);
    }
}

// --- opening ---

// Puts a part that an earlier program saved into its upload.
static cn_err take_part(void *context, const char *board, const char *group,
                        const struct cn_declare_request *declared, uint32_t part,
                        const uint8_t *bitmap, const uint8_t *data)
{
    struct cn_spool *spool = context;
    struct cn_spooled *upload = find_by_board(spool, board, group);
    size_t chunk_size = spool->config.chunk_size;
    if (declared->size > spool->config.frame_max)
        return CN_ERANGE;
    if (upload && (strcmp(upload->group, group) != 0 || !same_frame(&upload->declared, declared)))
        return CN_ECONFLICT;
    cn_err err = upload ? CN_OK : begin(spool, board, group, declared, &upload);
    uint32_t first = part * CN_SPOOL_PART;
    if (!err && first >= upload->chunk_count)
        err = CN_ERANGE;
    for (uint32_t i = 0; !err && i < CN_SPOOL_PART && first + i < upload->chunk_count; i++) {
        uint64_t offset = (uint64_t)(first + i) * chunk_size, left = declared->size - offset;
        if (!(bitmap[i / 8] >> (i % 8) & 1))
            continue;
        err = spool->config.store->ops->write(upload->file, offset, data + i * chunk_size,
                                              left < chunk_size ? (size_t)left : chunk_size);
        if (!err)
            mark(upload, first + i, 1);
    }
    if (!err) {
        upload->parts[part].saved = upload->parts[part].received;
        upload->parts[part].exists = true;
    } else if (err == CN_ENOSPC && upload) {
        // Also removes the files of its other parts, which fill the disk.
        cn_spool_drop(spool, upload);
    }
    return err;
}

cn_err cn_spool_open(const struct cn_spool_config *config, struct cn_spool **spool)
{
    struct cn_spool *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    cn_err err = cn_spool_parts_load(config, take_part, opened);
    if (err) {
        discard(opened); // a part that was read halfway must not replace its file
        return err;
    }
    for (struct cn_spooled *upload = opened->uploads; upload; upload = upload->next)
        upload->recent_count = upload->recent_next = 0; // this program has received nothing yet
    *spool = opened;
    return CN_OK;
}

uint32_t cn_spool_usage(const struct cn_spool *spool, uint64_t *bytes)
{
    uint32_t count = 0;
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next)
        count++;
    *bytes = spool->used;
    return count;
}
