#include "runtime/round/upkeep/small_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/port/crypto.h"

#define CRC_SIZE 4

bool cn_small_file_load(struct cn_store *store, const char *name,
                        const char magic[CN_SMALL_FILE_MAGIC], const char *lost, void *body,
                        size_t size)
{
    size_t crc_at = CN_SMALL_FILE_MAGIC + size, found = 0;
    uint8_t *bytes = NULL;
    cn_err err = store->ops->load(store, name, crc_at + CRC_SIZE, &bytes, &found);
    bool whole = !err && found == crc_at + CRC_SIZE &&
                 memcmp(bytes, magic, CN_SMALL_FILE_MAGIC) == 0 &&
                 cn_get_u32(bytes + crc_at) == cn_crc32c(0, bytes, crc_at);

    if (whole)
        memcpy(body, bytes + CN_SMALL_FILE_MAGIC, size);
    else if (err != CN_ENOTFOUND)
        cn_log(CN_LOG_WARN, name, "the file '%s' cannot be used (%s); %s", name,
               cn_err_text(err ? err : CN_EFORMAT), lost);
    free(bytes);
    return whole;
}

cn_err cn_small_file_save(struct cn_store *store, const char *name,
                          const char magic[CN_SMALL_FILE_MAGIC], const void *body, size_t size)
{
    uint8_t bytes[CN_SMALL_FILE_MAGIC + CN_SMALL_FILE_MAX + CRC_SIZE];
    size_t crc_at = CN_SMALL_FILE_MAGIC + size;

    assert(size <= CN_SMALL_FILE_MAX);
    memcpy(bytes, magic, CN_SMALL_FILE_MAGIC);
    memcpy(bytes + CN_SMALL_FILE_MAGIC, body, size);
    cn_put_u32(bytes + crc_at, cn_crc32c(0, bytes, crc_at));
    return cn_store_replace(store, name, bytes, crc_at + CRC_SIZE);
}
