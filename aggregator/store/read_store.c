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

struct cn_store_file {
    struct cn_mapping mapping;
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

static cn_err refuse_write(struct cn_store_file *file, uint64_t offset, const void *data,
                           size_t size)
{
    (void)file, (void)offset, (void)data, (void)size;
    return CN_ENOTSUP;
}

static cn_err refuse_commit(struct cn_store_file *file)
{
    (void)file;
    return CN_ENOTSUP;
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

static cn_err map_file(const struct cn_store *base, const char *name, size_t limit,
                       struct cn_mapping *mapping)
{
    const struct read_store *store = (const struct read_store *)base;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", store->directory, name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_EINVAL;
    return cn_platform_map(path, limit, mapping);
}

static cn_err open_file(struct cn_store *base, const char *name, struct cn_store_file **file,
                        uint64_t *size)
{
    struct cn_mapping mapping;
    cn_err err = map_file(base, name, SIZE_MAX, &mapping);
    if (err)
        return err;
    *file = malloc(sizeof(**file));
    if (!*file) {
        cn_platform_unmap(&mapping);
        return CN_ENOMEM;
    }
    (*file)->mapping = mapping;
    *size = mapping.size;
    return CN_OK;
}

static cn_err read_file(struct cn_store_file *file, uint64_t offset, void *data, size_t size)
{
    if (offset > file->mapping.size || size > file->mapping.size - offset)
        return CN_ERANGE;
    if (size)
        memcpy(data, (const uint8_t *)file->mapping.data + offset, size);
    return CN_OK;
}

static void close_file(struct cn_store_file *file)
{
    if (file)
        cn_platform_unmap(&file->mapping);
    free(file);
}

static cn_err load(struct cn_store *base, const char *name, size_t limit, uint8_t **data,
                   size_t *size)
{
    struct cn_mapping mapping;
    cn_err err = map_file(base, name, limit, &mapping);
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
    .open = open_file,
    .write = refuse_write,
    .read = read_file,
    .commit = refuse_commit,
    .abort = close_file,
    .load = load,
    .remove = refuse_remove,
    .unlink = refuse_remove,
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
