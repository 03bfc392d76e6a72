#include "tests/support/flaky_store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 64
#define NAME_SIZE 101

struct cn_flaky_file {
    char name[NAME_SIZE];
    uint8_t *data;
    size_t size;
};

struct cn_store_file {
    struct cn_flaky_store *flaky;
    struct cn_flaky_file file;
};

static struct cn_flaky_store *flaky_of(struct cn_store *store)
{
    return (struct cn_flaky_store *)store; // the store is the first member
}

// Counts an operation. Returns true if it must fail.
static bool fails(struct cn_flaky_store *flaky)
{
    flaky->operations++;
    if (flaky->fail_at == 0)
        return false;
    return flaky->lasting ? flaky->operations >= flaky->fail_at
                          : flaky->operations == flaky->fail_at;
}

static bool name_is_valid(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return *name && strlen(name) < NAME_SIZE && strspn(name, allowed) == strlen(name) &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

// Returns the index of the first visible file whose name is not before this name.
static size_t find(const struct cn_flaky_store *flaky, const char *name, bool *found)
{
    size_t i = 0;

    while (i < flaky->file_count && strcmp(flaky->files[i].name, name) < 0)
        i++;
    *found = i < flaky->file_count && !strcmp(flaky->files[i].name, name);
    return i;
}

static void flaky_close(struct cn_store *store)
{
    (void)store; // the test owns it
}

static cn_err flaky_create(struct cn_store *store, const char *name, struct cn_store_file **file)
{
    struct cn_flaky_store *flaky = flaky_of(store);

    if (!name_is_valid(name))
        return CN_EINVAL;
    if (fails(flaky))
        return flaky->fail_err;
    *file = calloc(1, sizeof(**file));
    assert(*file);
    (*file)->flaky = flaky;
    memcpy((*file)->file.name, name, strlen(name) + 1);
    flaky->open_count++;
    return CN_OK;
}

static cn_err flaky_open(struct cn_store *store, const char *name, struct cn_store_file **file,
                         uint64_t *size)
{
    struct cn_flaky_store *flaky = flaky_of(store);
    bool found;
    size_t i;

    if (!name_is_valid(name))
        return CN_EINVAL;
    if (fails(flaky))
        return flaky->fail_err;
    i = find(flaky, name, &found);
    if (!found)
        return CN_ENOTFOUND;
    *file = calloc(1, sizeof(**file));
    assert(*file);
    (*file)->flaky = flaky;
    *size = (*file)->file.size = flaky->files[i].size;
    (*file)->file.data = malloc(flaky->files[i].size + 1);
    assert((*file)->file.data);
    if (*size)
        memcpy((*file)->file.data, flaky->files[i].data, flaky->files[i].size);
    flaky->open_count++;
    return CN_OK;
}

static cn_err flaky_write(struct cn_store_file *file, uint64_t offset, const void *data,
                          size_t size)
{
    size_t end = (size_t)offset + size;

    if (fails(file->flaky))
        return file->flaky->fail_err;
    if (end > file->file.size) {
        uint8_t *grown = realloc(file->file.data, end);

        assert(grown);
        memset(grown + file->file.size, 0, end - file->file.size);
        file->file.data = grown;
        file->file.size = end;
    }
    if (size)
        memcpy(file->file.data + offset, data, size);
    return CN_OK;
}

static cn_err flaky_read(struct cn_store_file *file, uint64_t offset, void *data, size_t size)
{
    if (fails(file->flaky))
        return file->flaky->fail_err;
    if (offset > file->file.size || size > file->file.size - offset)
        return CN_ERANGE;
    if (size)
        memcpy(data, file->file.data + offset, size);
    return CN_OK;
}

static void flaky_abort(struct cn_store_file *file)
{
    if (!file)
        return;
    file->flaky->open_count--;
    free(file->file.data);
    free(file);
}

static cn_err flaky_commit(struct cn_store_file *file)
{
    struct cn_flaky_store *flaky = file->flaky;
    bool failed = fails(flaky);
    bool found;
    size_t i;

    if (failed && !flaky->commit_before_failing) {
        flaky_abort(file);
        return flaky->fail_err;
    }
    i = find(flaky, file->file.name, &found);
    if (found) {
        free(flaky->files[i].data);
    } else {
        assert(flaky->file_count < FILES_MAX);
        memmove(&flaky->files[i + 1], &flaky->files[i],
                (flaky->file_count - i) * sizeof(flaky->files[0]));
        flaky->file_count++;
    }
    flaky->files[i] = file->file;
    flaky->open_count--;
    free(file);
    return failed ? flaky->fail_err : CN_OK;
}

static cn_err flaky_load(struct cn_store *store, const char *name, size_t limit, uint8_t **data,
                         size_t *size)
{
    struct cn_flaky_store *flaky = flaky_of(store);
    bool found;
    size_t i;

    if (!name_is_valid(name))
        return CN_EINVAL;
    if (fails(flaky))
        return flaky->fail_err;
    i = find(flaky, name, &found);
    if (!found)
        return CN_ENOTFOUND;
    if (flaky->files[i].size > limit)
        return CN_ERANGE;
    *data = malloc(flaky->files[i].size + 1);
    assert(*data);
    if (flaky->files[i].size)
        memcpy(*data, flaky->files[i].data, flaky->files[i].size);
    *size = flaky->files[i].size;
    return CN_OK;
}

static cn_err flaky_unlink(struct cn_store *store, const char *name)
{
    struct cn_flaky_store *flaky = flaky_of(store);
    bool found;
    size_t i;

    if (!name_is_valid(name))
        return CN_EINVAL;
    if (fails(flaky))
        return flaky->fail_err;
    i = find(flaky, name, &found);
    if (!found)
        return CN_OK;
    free(flaky->files[i].data);
    flaky->file_count--;
    memmove(&flaky->files[i], &flaky->files[i + 1],
            (flaky->file_count - i) * sizeof(flaky->files[0]));
    return CN_OK;
}

static cn_err flaky_remove(struct cn_store *store, const char *name)
{
    flaky_of(store)->removals++;
    return flaky_unlink(store, name);
}

// Lists the files that exist before the first visit; visits may remove some.
static cn_err flaky_list(struct cn_store *store, cn_err (*visit)(void *context, const char *name),
                         void *context)
{
    struct cn_flaky_store *flaky = flaky_of(store);
    char names[FILES_MAX][NAME_SIZE];
    size_t count = flaky->file_count;

    if (fails(flaky))
        return flaky->fail_err;
    for (size_t i = 0; i < count; i++)
        memcpy(names[i], flaky->files[i].name, NAME_SIZE);
    for (size_t i = 0; i < count; i++) {
        cn_err err = visit(context, names[i]);

        if (err)
            return err;
    }
    return CN_OK;
}

static const struct cn_store_ops flaky_ops = {
    .close = flaky_close,
    .create = flaky_create,
    .open = flaky_open,
    .write = flaky_write,
    .read = flaky_read,
    .commit = flaky_commit,
    .abort = flaky_abort,
    .load = flaky_load,
    .remove = flaky_remove,
    .unlink = flaky_unlink,
    .list = flaky_list,
};

void cn_flaky_store_init(struct cn_flaky_store *flaky)
{
    *flaky = (struct cn_flaky_store){.store.ops = &flaky_ops, .fail_err = CN_EIO};
    flaky->files = calloc(FILES_MAX, sizeof(flaky->files[0]));
    assert(flaky->files);
}

void cn_flaky_store_deinit(struct cn_flaky_store *flaky)
{
    for (size_t i = 0; i < flaky->file_count; i++)
        free(flaky->files[i].data);
    free(flaky->files);
    *flaky = (struct cn_flaky_store){0};
}

void cn_flaky_store_fail(struct cn_flaky_store *flaky, unsigned number, bool lasting, cn_err err)
{
    flaky->fail_at = number ? flaky->operations + number : 0;
    flaky->lasting = lasting;
    flaky->fail_err = err;
}

uint8_t *cn_flaky_store_bytes(struct cn_flaky_store *flaky, const char *name, size_t *size)
{
    bool found;
    size_t i = find(flaky, name, &found);

    if (!found)
        return NULL;
    *size = flaky->files[i].size;
    return flaky->files[i].data;
}
