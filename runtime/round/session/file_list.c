#include "runtime/round/session/file_list.h"

#include <string.h>

#include "runtime/port/crypto.h"

#define HEADER_SIZE 28
#define ENTRY_SIZE 14 // bytes of an entry without its name

static const uint8_t magic[8] = "cairnds1"; // the digit is the version

enum { APART = 1, REFUSED = 2 };

static cn_err put_entry(const struct cn_data_file *shard, struct cn_buffer *out)
{
    size_t length = strlen(shard->name);
    uint8_t entry[ENTRY_SIZE];
    cn_err err;

    entry[0] = (uint8_t)((shard->apart ? APART : 0) | (shard->refused ? REFUSED : 0));
    entry[1] = (uint8_t)length;
    cn_put_u64(entry + 2, shard->bytes);
    cn_put_u32(entry + 10, shard->checksum);
    err = cn_buffer_append(out, entry, sizeof(entry));
    return err ? err : cn_buffer_append(out, shard->name, length);
}

cn_err cn_file_list_encode(const struct cn_file_list *list, struct cn_buffer *out)
{
    uint8_t header[HEADER_SIZE], digest[CN_DIGEST_SIZE];
    size_t start = out->size;
    cn_err err;

    memcpy(header, magic, sizeof(magic));
    cn_put_u64(header + 8, list->run);
    cn_put_u32(header + 16, list->lineage);
    cn_put_u32(header + 20, list->round);
    cn_put_u32(header + 24, (uint32_t)list->shards.count);
    err = cn_buffer_append(out, header, sizeof(header));
    for (size_t i = 0; !err && i < list->shards.count; i++)
        err = put_entry(&list->shards.items[i], out);
    if (err)
        return err;
    cn_crypto_digest(out->data + start, out->size - start, digest);
    return cn_buffer_append(out, digest, sizeof(digest));
}

static cn_err read_entry(const uint8_t *bytes, size_t size, struct cn_data_files *shards,
                         size_t *read)
{
    struct cn_data_file shard = {0};
    size_t length;

    if (size < ENTRY_SIZE || size - ENTRY_SIZE < bytes[1] || bytes[1] >= sizeof(shard.name) ||
        bytes[0] & ~(APART | REFUSED))
        return CN_EFORMAT;
    length = bytes[1];
    shard.apart = bytes[0] & APART;
    shard.refused = bytes[0] & REFUSED;
    shard.bytes = cn_get_u64(bytes + 2);
    shard.checksum = cn_get_u32(bytes + 10);
    memcpy(shard.name, bytes + ENTRY_SIZE, length);
    if (strlen(shard.name) != length || (length && !cn_data_files_is_name(shard.name)))
        return CN_EFORMAT;
    *read = ENTRY_SIZE + length;
    return cn_data_files_add(shards, &shard);
}

static cn_err read_entries(const uint8_t *bytes, size_t size, size_t count,
                           struct cn_data_files *shards)
{
    for (size_t i = 0; i < count; i++) {
        size_t read = 0;
        cn_err err = read_entry(bytes, size, shards, &read);

        if (err)
            return err;
        bytes += read;
        size -= read;
    }
    return size ? CN_EFORMAT : CN_OK;
}

cn_err cn_file_list_decode(const uint8_t *bytes, size_t size, struct cn_file_list *list)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err;

    *list = (struct cn_file_list){.round = 0};
    if (size < HEADER_SIZE + CN_DIGEST_SIZE || memcmp(bytes, magic, sizeof(magic)) != 0)
        return CN_EFORMAT;
    size -= CN_DIGEST_SIZE;
    cn_crypto_digest(bytes, size, digest);
    if (memcmp(digest, bytes + size, CN_DIGEST_SIZE) != 0)
        return CN_EFORMAT;
    list->run = cn_get_u64(bytes + 8);
    list->lineage = cn_get_u32(bytes + 16);
    list->round = cn_get_u32(bytes + 20);
    err = read_entries(bytes + HEADER_SIZE, size - HEADER_SIZE, cn_get_u32(bytes + 24),
                       &list->shards);
    if (err)
        cn_data_files_deinit(&list->shards);
    return err;
}
