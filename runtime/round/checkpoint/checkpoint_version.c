// checkpoint_version.c - tells the states of other versions of Cairn from damaged ones.
#include <string.h>

#include "runtime/round/checkpoint/checkpoint_private.h"

cn_err cn_checkpoint_find_unknown(struct cn_store *store, uint32_t *version)
{
    for (int slot = 0; slot < 2; slot++) {
        uint8_t start[sizeof(cn_checkpoint_magic)];
        struct cn_store_file *file;
        uint64_t size;
        cn_err err = store->ops->open(store, cn_checkpoint_slots[slot], &file, &size);

        if (err)
            continue;
        err = store->ops->read(file, 0, start, sizeof(start));
        store->ops->abort(file);
        if (err || memcmp(start, cn_checkpoint_magic, sizeof(start) - 1) != 0)
            continue;
        *version = start[7] - (uint32_t)'0';
        if (*version <= 9 && (*version < CN_CHECKPOINT_OLDEST || *version > CN_CHECKPOINT_VERSION))
            return CN_OK;
    }
    return CN_ENOTFOUND;
}
