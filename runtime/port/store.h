// store.h - named files that are always whole: the contract between crash-safe state and a disk.
//
// A new file is invisible until commit, which shows all of it or nothing, also across a power cut.
// A failed call, except commit and remove, leaves the visible files as they were. A name is 1 to
// 100 characters of [a-zA-Z0-9._-] that do not start with ".". It stands for one file in the
// store's directory.
//
// Errors: CN_ENOSPC when the disk is full, CN_EIO for other disk errors, CN_EINVAL for a bad name,
// CN_ENOMEM.
// Threading: any thread, but only one at a time for each name, for each open file and for close.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_store; // a port embeds it as its first member
struct cn_store_file;

struct cn_store_ops {
    void (*close)(struct cn_store *store);

    // Begins a new, invisible file, to be ended with commit or abort. Several may be open. After a
    // crash they are gone.
    cn_err (*create)(struct cn_store *store, const char *name, struct cn_store_file **file);

    // Writes size bytes at offset, in any order of offsets. A gap reads as zeros.
    cn_err (*write)(struct cn_store_file *file, uint64_t offset, const void *data, size_t size);

    // Opens a visible file for reading and sets *size to its size in bytes. Later commits of this
    // name do not change what is read. End reading with abort. Returns CN_ENOTFOUND when there is
    // no such file.
    cn_err (*open)(struct cn_store *store, const char *name, struct cn_store_file **file,
                   uint64_t *size);

    // Reads from a file of create or open. Returns CN_ERANGE beyond the end.
    cn_err (*read)(struct cn_store_file *file, uint64_t offset, void *data, size_t size);

    // Makes the file durable and visible under its name, in place of an older one. Takes file.
    // After an error the older file, if any, or the new one is visible.
    cn_err (*commit)(struct cn_store_file *file);

    // Drops a file of create, or ends reading one of open. Takes file, which may be NULL.
    void (*abort)(struct cn_store_file *file);

    // Reads the whole of a visible file. *data is malloced; the caller frees it. Returns
    // CN_ENOTFOUND when there is no such file, or CN_ERANGE, before it allocates, when the file is
    // larger than limit.
    cn_err (*load)(struct cn_store *store, const char *name, size_t limit, uint8_t **data,
                   size_t *size);

    // Removes a visible file durably. A missing file is no error. After an error the file may be
    // gone or still visible.
    cn_err (*remove)(struct cn_store *store, const char *name);

    // Removes a visible file, which may be there again after a power cut until a later commit or
    // remove. A missing file is no error.
    cn_err (*unlink)(struct cn_store *store, const char *name);

    // Calls visit with the name of each visible file, in the order of names. An error of visit ends
    // the walk and is returned.
    cn_err (*list)(struct cn_store *store, cn_err (*visit)(void *context, const char *name),
                   void *context);
};

struct cn_store {
    const struct cn_store_ops *ops;
};

// Writes a whole file in one call: create, write, commit.
cn_err cn_store_replace(struct cn_store *store, const char *name, const void *data, size_t size);

// Writes a file piece by piece; gathers small pieces into larger writes.
struct cn_store_writer {
    struct cn_store *store;
    struct cn_store_file *file;
    uint64_t offset;          // where the gathered bytes begin in the file
    size_t waiting;           // number of gathered bytes
    uint8_t bytes[16u << 10]; // gathered bytes, not written yet
};

// Begins a new file. On success, end it with cn_store_writer_end. After an error of put, call end
// with that error.
cn_err cn_store_writer_begin(struct cn_store *store, const char *name,
                             struct cn_store_writer *writer);

// Appends size bytes of piece.
cn_err cn_store_writer_put(struct cn_store_writer *writer, const void *piece, size_t size);

// Commits the file when err is CN_OK. Otherwise, or when the last write fails, drops it and returns
// the error.
cn_err cn_store_writer_end(struct cn_store_writer *writer, cn_err err);
