#include "runtime/port/store.h"

cn_err cn_store_replace(struct cn_store *store, const char *name, const void *data, size_t size)
{
    struct cn_store_file *file;
    cn_err err;

    err = store->ops->create(store, name, &file);
    if (err)
        return err;
    err = store->ops->write(file, 0, data, size);
    if (err) {
        store->ops->abort(file);
        return err;
    }
    return store->ops->commit(file);
}
