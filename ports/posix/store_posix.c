// store_posix.c - a store in a directory.
//
// A file being written is called ".new-NUMBER-NAME" until commit renames it. The lock is ".lock",
// held with flock: the kernel releases it however the process ends.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/port/platform.h"
#include "runtime/port/store.h"

#define NAME_MAX_SIZE 101
#define ASIDE_PREFIX ".new-"
#define LOCK_NAME ".lock"

struct posix_store {
    struct cn_store base;
    int directory; // descriptor
    int lock;      // descriptor
    atomic_uint next_aside;
};

struct cn_store_file {
    struct posix_store *store;
    int descriptor;
    char name[NAME_MAX_SIZE];
    char aside[NAME_MAX_SIZE + 24]; // name until commit; "" for a file opened to read
};

static bool name_allowed(const char *name)
{
    size_t length = strlen(name);

    return length > 0 && length < NAME_MAX_SIZE && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               length;
}

static cn_err posix_create(struct cn_store *base, const char *name, struct cn_store_file **result)
{
    struct posix_store *store = (struct posix_store *)base;
    struct cn_store_file *file;

    if (!name_allowed(name))
        return CN_EINVAL;
    file = calloc(1, sizeof(*file));
    if (!file)
        return CN_ENOMEM;
    file->store = store;
    snprintf(file->name, sizeof(file->name), "%s", name);
    snprintf(file->aside, sizeof(file->aside), ASIDE_PREFIX "%u-%s",
             atomic_fetch_add(&store->next_aside, 1), name);
    file->descriptor =
        openat(store->directory, file->aside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file->descriptor < 0) {
        cn_err err = cn_err_from_errno(errno);

        free(file);
        return err;
    }
    *result = file;
    return CN_OK;
}

static cn_err open_visible(const struct posix_store *store, const char *name, int *descriptor)
{
    if (!name_allowed(name))
        return CN_EINVAL;
    *descriptor = openat(store->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return *descriptor < 0 ? cn_err_from_errno(errno) : CN_OK;
}

static cn_err posix_open(struct cn_store *base, const char *name, struct cn_store_file **result,
                         uint64_t *size)
{
    struct posix_store *store = (struct posix_store *)base;
    struct cn_store_file *file = calloc(1, sizeof(*file));
    struct stat info;
    cn_err err;

    if (!file)
        return CN_ENOMEM;
    file->store = store;
    err = open_visible(store, name, &file->descriptor);
    if (!err && fstat(file->descriptor, &info)) {
        err = cn_err_from_errno(errno);
        close(file->descriptor);
    }
    if (err) {
        free(file);
        return err;
    }
    *size = (uint64_t)info.st_size;
    *result = file;
    return CN_OK;
}

static cn_err posix_write(struct cn_store_file *file, uint64_t offset, const void *data,
                          size_t size)
{
    const uint8_t *from = data;

    while (size) {
        ssize_t written = pwrite(file->descriptor, from, size, (off_t)offset);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return cn_err_from_errno(errno);
        from += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return CN_OK;
}

static cn_err read_all(int descriptor, uint64_t offset, void *data, size_t size)
{
    uint8_t *to = data;

    while (size) {
        ssize_t got = pread(descriptor, to, size, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cn_err_from_errno(errno);
        if (got == 0)
            return CN_ERANGE;
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return CN_OK;
}

static cn_err posix_read(struct cn_store_file *file, uint64_t offset, void *data, size_t size)
{
    return read_all(file->descriptor, offset, data, size);
}

static void posix_abort(struct cn_store_file *file)
{
    if (!file)
        return;
    close(file->descriptor);
    if (file->aside[0])
        unlinkat(file->store->directory, file->aside, 0);
    free(file);
}

static cn_err posix_commit(struct cn_store_file *file)
{
    int directory = file->store->directory;
    cn_err err;

    if (fsync(file->descriptor) || renameat(directory, file->aside, directory, file->name)) {
        err = cn_err_from_errno(errno);
        posix_abort(file);
        return err;
    }
    err = fsync(directory) ? cn_err_from_errno(errno) : CN_OK;
    close(file->descriptor);
    free(file);
    return err;
}

static cn_err load_descriptor(int descriptor, size_t limit, uint8_t **data, size_t *size)
{
    struct stat info;
    uint8_t *bytes;
    cn_err err;

    if (fstat(descriptor, &info))
        return cn_err_from_errno(errno);
    if ((uint64_t)info.st_size > limit)
        return CN_ERANGE;
    bytes = malloc((size_t)info.st_size + 1); // malloc(0) may be NULL
    if (!bytes)
        return CN_ENOMEM;
    err = read_all(descriptor, 0, bytes, (size_t)info.st_size);
    if (err) {
        free(bytes);
        return err;
    }
    *data = bytes;
    *size = (size_t)info.st_size;
    return CN_OK;
}

static cn_err posix_load(struct cn_store *base, const char *name, size_t limit, uint8_t **data,
                         size_t *size)
{
    int descriptor;
    cn_err err = open_visible((struct posix_store *)base, name, &descriptor);

    if (err)
        return err;
    err = load_descriptor(descriptor, limit, data, size);
    close(descriptor);
    return err;
}

static cn_err posix_unlink(struct cn_store *base, const char *name)
{
    struct posix_store *store = (struct posix_store *)base;

    if (!name_allowed(name))
        return CN_EINVAL;
    if (unlinkat(store->directory, name, 0) && errno != ENOENT)
        return cn_err_from_errno(errno);
    return CN_OK;
}

static cn_err posix_remove(struct cn_store *base, const char *name)
{
    struct posix_store *store = (struct posix_store *)base;

    if (!name_allowed(name))
        return CN_EINVAL;
    if (unlinkat(store->directory, name, 0))
        return errno == ENOENT ? CN_OK : cn_err_from_errno(errno);
    return fsync(store->directory) ? cn_err_from_errno(errno) : CN_OK;
}

// Lists the directory, sorted by name. scandirat opens the directory itself: a shared descriptor
// would share its read position too.
static cn_err scan(const struct posix_store *store, struct dirent ***entries, int *count)
{
    *count = scandirat(store->directory, ".", entries, NULL, alphasort);
    return *count < 0 ? cn_err_from_errno(errno) : CN_OK;
}

static void free_entries(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static cn_err posix_list(struct cn_store *base, cn_err (*visit)(void *context, const char *name),
                         void *context)
{
    const struct posix_store *store = (const struct posix_store *)base;
    struct dirent **entries;
    int count;
    cn_err err;

    err = scan(store, &entries, &count);
    if (err)
        return err;
    for (int i = 0; i < count && !err; i++) {
        if (name_allowed(entries[i]->d_name))
            err = visit(context, entries[i]->d_name);
    }
    free_entries(entries, count);
    return err;
}

static void posix_close(struct cn_store *base)
{
    struct posix_store *store = (struct posix_store *)base;
    int reason = errno; // reason of an earlier failure, for cn_err_reason

    if (!store)
        return;
    close(store->lock);
    close(store->directory);
    free(store);
    errno = reason;
}

static const struct cn_store_ops posix_ops = {
    .close = posix_close,
    .create = posix_create,
    .open = posix_open,
    .write = posix_write,
    .read = posix_read,
    .commit = posix_commit,
    .abort = posix_abort,
    .load = posix_load,
    .remove = posix_remove,
    .unlink = posix_unlink,
    .list = posix_list,
};

static cn_err make_directories(const char *path)
{
    char partial[4096];
    size_t length = strlen(path);

    if (length == 0 || length >= sizeof(partial))
        return CN_EINVAL;
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        partial[i] = '\0';
        if (mkdir(partial, 0700) && errno != EEXIST)
            return cn_err_from_errno(errno);
        partial[i] = path[i];
    }
    return CN_OK;
}

static cn_err take_lock(struct posix_store *store)
{
    store->lock = openat(store->directory, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock < 0)
        return cn_err_from_errno(errno);
    if (flock(store->lock, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK ? CN_EEXIST : cn_err_from_errno(errno);
    return CN_OK;
}

static cn_err remove_leftovers(struct posix_store *store)
{
    struct dirent **entries;
    int count;
    cn_err err;

    err = scan(store, &entries, &count);
    if (err)
        return err;
    for (int i = 0; i < count; i++) {
        if (strncmp(entries[i]->d_name, ASIDE_PREFIX, strlen(ASIDE_PREFIX)) == 0)
            unlinkat(store->directory, entries[i]->d_name, 0);
    }
    free_entries(entries, count);
    return CN_OK;
}

cn_err cn_platform_open_store(const char *directory, struct cn_store **result)
{
    struct posix_store *store;
    cn_err err;

    err = make_directories(directory);
    if (err)
        return err;
    store = calloc(1, sizeof(*store));
    if (!store)
        return CN_ENOMEM;
    store->base.ops = &posix_ops;
    store->lock = -1;
    store->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err = store->directory < 0 ? cn_err_from_errno(errno) : take_lock(store);
    if (!err)
        err = remove_leftovers(store);
    if (err) {
        posix_close(&store->base);
        return err;
    }
    *result = &store->base;
    return CN_OK;
}
