#include "runtime/round/epoch/epoch_file.h"

#include <stdlib.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

#define FILE_NAME "group.epoch"
#define FILE_SIZE 32
#define OLD_SIZE 16 // without a key epoch

// The words of the file.
struct content {
    uint64_t epoch, key_epoch;
};

// Returns whether the file is whole. One without a key epoch counts as of these keys.
static bool decode(const uint8_t *bytes, size_t size, uint64_t key_epoch, struct content *content)
{
    *content = (struct content){.key_epoch = key_epoch};
    if (size != FILE_SIZE && size != OLD_SIZE)
        return false;
    content->epoch = cn_get_u64(bytes);
    if (size == FILE_SIZE)
        content->key_epoch = cn_get_u64(bytes + 8);
    return cn_get_u64(bytes + size / 2) == ~content->epoch &&
           (size == OLD_SIZE || cn_get_u64(bytes + 24) == ~content->key_epoch);
}

uint64_t cn_epoch_file_load(struct cn_store *store, uint64_t key_epoch, uint64_t checkpoint)
{
    struct content content = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, FILE_NAME, FILE_SIZE, &bytes, &size);

    if (err == CN_ENOTFOUND)
        return checkpoint;
    if (!err && !decode(bytes, size, key_epoch, &content))
        err = CN_EFORMAT;
    free(bytes);
    if (err) {
        cn_log(CN_LOG_WARN, "group", "%s cannot be used: %s", FILE_NAME, cn_err_text(err));
        return checkpoint;
    }
    if (size == OLD_SIZE && checkpoint > content.epoch)
        return checkpoint;
    return content.key_epoch < key_epoch ? 0 : content.epoch;
}

cn_err cn_epoch_file_save(struct cn_store *store, uint64_t key_epoch, uint64_t epoch)
{
    uint8_t bytes[FILE_SIZE];

    cn_put_u64(bytes, epoch);
    cn_put_u64(bytes + 8, key_epoch);
    cn_put_u64(bytes + 16, ~epoch);
    cn_put_u64(bytes + 24, ~key_epoch);
    return cn_store_replace(store, FILE_NAME, bytes, sizeof(bytes));
}
