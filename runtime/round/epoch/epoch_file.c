#include "runtime/round/epoch/epoch_file.h"

#include <stdlib.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

#define FILE_NAME "group.epoch"
#define FILE_SIZE 16

uint64_t cn_epoch_file_load(struct cn_store *store)
{
    uint8_t *bytes = NULL;
    uint64_t epoch = 0;
    size_t size = 0;
    cn_err err = store->ops->load(store, FILE_NAME, FILE_SIZE, &bytes, &size);

    if (err == CN_ENOTFOUND)
        return 0;
    if (!err && size == FILE_SIZE && cn_get_u64(bytes) == ~cn_get_u64(bytes + 8))
        epoch = cn_get_u64(bytes);
    else
        cn_log(CN_LOG_WARN, "group", "%s cannot be used: %s", FILE_NAME,
               cn_err_text(err ? err : CN_EFORMAT));
    free(bytes);
    return epoch;
}

cn_err cn_epoch_file_save(struct cn_store *store, uint64_t epoch)
{
    uint8_t bytes[FILE_SIZE];

    cn_put_u64(bytes, epoch);
    cn_put_u64(bytes + 8, ~epoch);
    return cn_store_replace(store, FILE_NAME, bytes, sizeof(bytes));
}
