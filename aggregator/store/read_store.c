#include "aggregator/store/read_store.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/platform.h"

struct read_store {
    struct cn_store base;
    char directory[];
};

static void close_store(struct cn_store *store)
{
    free(store);
}

static cn_err refuse_create(struct cn_store *store, const char *name, struct cn_store_file **file)
{
    (void)store, (void)name, (void)file;
    return CN_ENOTSUP;
}

static cn_err refuse_open(struct cn_store *store, const char *name, struct cn_store_file **file,
                          uint64_t *size)
{
    (void)store, (void)name, (void)file, (void)size;
    return CN_ENOTSUP;
}

static cn_err refuse_write(struct cn_store_file *file, uint64_t offset, const void *data,
                           size_t size)
{
    (void)file, (void)offset, (void)data, (void)size;
    return CN_ENOTSUP;
}

static cn_err refuse_read(struct cn_store_file *file, uint64_t offset, void *data, size_t size)
{
    (void)file, (void)offset, (void)data, (void)size;
    return CN_ENOTSUP;
}

static cn_err refuse_commit(struct cn_store_file *file)
{
    (void)file;
    return CN_ENOTSUP;
}

static void refuse_abort(struct cn_store_file *file)
{
    (void)file;
}

static cn_err refuse_remove(struct cn_store *store, const char *name)
{
    (void)store, (void)name;
    return CN_ENOTSUP;
}

static cn_err refuse_list(struct cn_store *store, cn_err (*visit)(void *context, const char *name),
                          void *context)
{
    (void)store, (void)visit, (void)context;
    return CN_ENOTSUP;
}

static cn_err load(struct cn_store *base, const char *name, size_t limit, uint8_t **data,
                   size_t *size)
{
    const struct read_store *store = (const struct read_store *)base;
    char path[PATH_MAX];
    struct cn_mapping mapping;
    int length = snprintf(path, sizeof(path), "%s/%s", store->directory, name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_EINVAL;
    cn_err err = cn_platform_map(path, limit, &mapping);
    if (err)
        return err;
    *data = malloc(mapping.size + 1); // + 1, because malloc(0) may return NULL
    if (*data) {
        *size = mapping.size;
        if (mapping.size)
            memcpy(*data, mapping.data, mapping.size);
    }
    cn_platform_unmap(&mapping);
    return *data ? CN_OK : CN_ENOMEM;
}

static const struct cn_store_ops ops = {
    .close = close_store,
    .create = refuse_create,
    .open = refuse_open,
    .write = refuse_write,
    .read = refuse_read,
    .commit = refuse_commit,
    .abort = refuse_abort,
    .load = load,
    .remove = refuse_remove,
    .list = refuse_list,
};

cn_err cn_read_store_open(const char *directory, struct cn_store **store)
{
    size_t size = strlen(directory) + 1;
    struct read_store *opened = malloc(sizeof(*opened) + size);
    if (!opened)
        return CN_ENOMEM;
    opened->base.ops = &ops;
    memcpy(opened->directory, directory, size);
    *store = &opened->base;
    return CN_OK;
}
