// The parts of uploads as files. round-N-BOARD.part-K holds a header, one bit for each chunk of the
// part, and the bytes of all chunks. Chunks that the board has not sent are zeros. Version 1 of the
// header is only read: its file had the group's name, and it did not name the board. There is no
// checksum, because the store keeps a file complete and the frame's digest is checked in the end.
#include "aggregator/store/spool_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool_bits.h"
#include "aggregator/store/spool_name.h"
#include "runtime/base/log.h"

#define MAGIC_SIZE 8
#define BITMAP_SIZE (CN_SPOOL_PART / 8)
// Version 1: magic, run, round, size, digest, base, chunk size.
#define HEADER_1_SIZE (MAGIC_SIZE + 8 + 4 + 8 + 2 * CN_DIGEST_SIZE + 4)
// Version 2 adds board and group, each padded with zeros.
#define HEADER_SIZE (HEADER_1_SIZE + 2 * CN_NAME_SIZE)

static const uint8_t magic[MAGIC_SIZE] = {'c', 'a', 'i', 'r', 'n', 'p', 't', '2'};
static const uint8_t magic_1[MAGIC_SIZE] = {'c', 'a', 'i', 'r', 'n', 'p', 't', '1'};

uint32_t cn_spool_part_count(const struct cn_spooled *upload)
{
    return (upload->chunk_count + CN_SPOOL_PART - 1) / CN_SPOOL_PART;
}

static const char *owner_of(const struct cn_spooled *upload)
{
    return upload->board[0] ? upload->board : upload->group;
}

static uint8_t *put_header(const struct cn_spool_config *config, const struct cn_spooled *upload,
                           uint8_t *to)
{
    const struct cn_declare_request *declared = &upload->declared;
    memcpy(to, magic, MAGIC_SIZE);
    cn_put_u64(to + 8, declared->run);
    cn_put_u32(to + 16, declared->round);
    cn_put_u64(to + 20, declared->size);
    memcpy(to + 28, declared->digest, CN_DIGEST_SIZE);
    memcpy(to + 28 + CN_DIGEST_SIZE, declared->base, CN_DIGEST_SIZE);
    cn_put_u32(to + 28 + 2 * CN_DIGEST_SIZE, config->chunk_size);
    memcpy(to + HEADER_1_SIZE, upload->board, strlen(upload->board)); // to was zeroed
    memcpy(to + HEADER_1_SIZE + CN_NAME_SIZE, upload->group, strlen(upload->group));
    return to + HEADER_SIZE;
}

static bool get_name(const uint8_t *from, char name[CN_NAME_SIZE])
{
    memcpy(name, from, CN_NAME_SIZE);
    return !name[CN_NAME_SIZE - 1] && cn_name_valid(name);
}

// Reads the header of a file whose name contains owner. Returns the header's size, or 0 when the
// file cannot be used.
static size_t get_header(const struct cn_spool_config *config, const uint8_t *from, size_t size,
                         const char *owner, struct cn_declare_request *declared,
                         char board[CN_NAME_SIZE], char group[CN_NAME_SIZE])
{
    bool first = size > HEADER_1_SIZE && memcmp(from, magic_1, MAGIC_SIZE) == 0;
    if (!first && (size <= HEADER_SIZE || memcmp(from, magic, MAGIC_SIZE) != 0))
        return 0;
    board[0] = '\0';
    snprintf(group, CN_NAME_SIZE, "%s", owner);
    if (!first && (!get_name(from + HEADER_1_SIZE, board) || strcmp(board, owner) != 0 ||
                   !get_name(from + HEADER_1_SIZE + CN_NAME_SIZE, group)))
        return 0;
    declared->run = cn_get_u64(from + 8);
    declared->round = cn_get_u32(from + 16);
    declared->size = cn_get_u64(from + 20);
    memcpy(declared->digest, from + 28, CN_DIGEST_SIZE);
    memcpy(declared->base, from + 28 + CN_DIGEST_SIZE, CN_DIGEST_SIZE);
    if (!declared->size || cn_get_u32(from + 28 + 2 * CN_DIGEST_SIZE) != config->chunk_size)
        return 0;
    return first ? HEADER_1_SIZE : HEADER_SIZE;
}

// Returns the number of bytes of the part's chunks, or 0 when the frame has no such part.
static size_t part_bytes(const struct cn_spool_config *config, uint64_t size, uint32_t part)
{
    uint64_t full = (uint64_t)CN_SPOOL_PART * config->chunk_size;
    uint64_t offset = part * full;
    if (offset >= size)
        return 0;
    return (size_t)(size - offset < full ? size - offset : full);
}

// Reads only the chunks that are there. The file ends after the last chunk that was written, so a
// gap at the end cannot be read.
static cn_err read_chunks(const struct cn_spool_config *config, const struct cn_spooled *upload,
                          uint32_t part, const uint8_t *bitmap, uint8_t *data, size_t size)
{
    size_t chunk_size = config->chunk_size;
    uint64_t begin = (uint64_t)part * CN_SPOOL_PART * chunk_size;
    uint32_t count = (uint32_t)((size + chunk_size - 1) / chunk_size), end;
    cn_err err = CN_OK;
    for (uint32_t i = cn_spool_bits_find(bitmap, true, 0, count); !err && i < count;
         i = cn_spool_bits_find(bitmap, true, end, count)) {
        end = cn_spool_bits_find(bitmap, false, i, count);
        size_t from = i * chunk_size, to = end * chunk_size;
        err = config->store->ops->read(upload->file, begin + from, data + from,
                                       (to < size ? to : size) - from);
    }
    return err;
}

cn_err cn_spool_part_save(const struct cn_spool_config *config, struct cn_spooled *upload,
                          uint32_t part)
{
    size_t size = part_bytes(config, upload->declared.size, part);
    uint32_t first = part * (CN_SPOOL_PART / 8);
    size_t bits = upload->chunk_count / 8 + 1 - first;
    uint8_t *bytes = calloc(1, HEADER_SIZE + BITMAP_SIZE + size);
    char name[CN_SPOOL_NAME_SIZE];
    if (!bytes)
        return CN_ENOMEM;
    uint8_t *bitmap = put_header(config, upload, bytes);
    for (size_t i = 0; i < bits && i < BITMAP_SIZE; i++)
        bitmap[i] = (uint8_t)(upload->bitmap[first + i] & ~upload->lent[first + i]);
    cn_spool_part_name(upload->declared.round, owner_of(upload), part, name);
    cn_err err = read_chunks(config, upload, part, bitmap, bitmap + BITMAP_SIZE, size);
    if (!err) {
        upload->parts[part].exists =
            true; // also after an error: the file may be there all the same
        err = cn_store_replace(config->store, name, bytes, HEADER_SIZE + BITMAP_SIZE + size);
    }
    free(bytes);
    if (!err)
        upload->parts[part].saved = upload->parts[part].received;
    return err;
}

void cn_spool_parts_remove(const struct cn_spool_config *config, const struct cn_spooled *upload)
{
    char name[CN_SPOOL_NAME_SIZE];
    for (uint32_t i = 0; i < cn_spool_part_count(upload); i++) {
        if (!upload->parts[i].exists)
            continue;
        cn_spool_part_name(upload->declared.round, owner_of(upload), i, name);
        if (config->store->ops->unlink(config->store, name))
            cn_log(CN_LOG_DEBUG, "spool", "%s stays", name);
    }
}

// --- loading ---

struct loading {
    const struct cn_spool_config *config;
    cn_spool_part_visit *visit;
    void *context;
};

static cn_err load_part(const struct loading *loading, const char *name, const char *owner,
                        uint32_t round, uint32_t part)
{
    char board[CN_NAME_SIZE], group[CN_NAME_SIZE];
    const struct cn_spool_config *config = loading->config;
    struct cn_declare_request declared = {0};
    uint8_t *bytes = NULL;
    size_t size, limit = HEADER_SIZE + BITMAP_SIZE + (size_t)CN_SPOOL_PART * config->chunk_size;
    cn_err err = config->store->ops->load(config->store, name, limit, &bytes, &size);
    if (err)
        return err;
    size_t header = get_header(config, bytes, size, owner, &declared, board, group);
    bool fits = header && size > header + BITMAP_SIZE && declared.round == round &&
                size == header + BITMAP_SIZE + part_bytes(config, declared.size, part);
    err = fits ? loading->visit(loading->context, board, group, &declared, part, bytes + header,
                                bytes + header + BITMAP_SIZE)
               : CN_EFORMAT;
    free(bytes);
    return err;
}

// Removes a file that cannot be used, and the board sends its chunks again. On a full disk this
// makes room.
static cn_err visit_file(void *context, const char *name)
{
    const struct loading *loading = context;
    struct cn_store *store = loading->config->store;
    char owner[CN_NAME_SIZE];
    uint32_t round, part;
    if (!cn_spool_parse_part_name(name, &round, owner, &part))
        return CN_OK;
    cn_err err = load_part(loading, name, owner, round, part);
    if (err == CN_EFORMAT || err == CN_ERANGE || err == CN_ECONFLICT) {
        cn_log(CN_LOG_WARN, "spool", "%s cannot be used and is removed", name);
        err = store->ops->remove(store, name);
    } else if (err == CN_ENOSPC) {
        cn_log(CN_LOG_WARN, "spool",
               "the disk is full: %s cannot be continued and is removed; %s sends its update again",
               name, owner);
        err = CN_OK;
        if (store->ops->remove(store, name))
            cn_log(CN_LOG_WARN, "spool", "%s stays", name);
    }
    return err;
}

cn_err cn_spool_parts_load(const struct cn_spool_config *config, cn_spool_part_visit *visit,
                           void *context)
{
    struct loading loading = {.config = config, .visit = visit, .context = context};
    return config->store->ops->list(config->store, visit_file, &loading);
}
