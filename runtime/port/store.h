// store.h - named files that are always whole: the contract between crash-safe state and a disk.
//
// A file is written aside and becomes visible with commit, all of it or nothing, also across a
// power cut. A failed call leaves the visible files as they were, but see commit. Names are
// [a-zA-Z0-9._-], at most 100 bytes, and name one file of the store's directory; "." and ".." do
// not exist.
//
// Errors: CN_ENOSPC when the disk is full, CN_EIO for the rest of what disks do, CN_EINVAL for a
// name. Threading: any threads; one at a time for each name and each open file, and for close.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_store; // a port embeds it as its first member
struct cn_store_file;

struct cn_store_ops {
    void (*close)(struct cn_store *store);

    // Begins a file aside. Several may be open; an open one is invisible and gone after a crash.
    cn_err (*create)(struct cn_store *store, const char *name, struct cn_store_file **file);

    // Any order of offsets; a gap reads as zeros.
    cn_err (*write)(struct cn_store_file *file, uint64_t offset, const void *data, size_t size);

    // Shows a visible file, as it is now, to read; abort ends that. CN_ENOTFOUND when there is
    // none.
    cn_err (*open)(struct cn_store *store, const char *name, struct cn_store_file **file,
                   uint64_t *size);

    // Reads back what was written, or shown. CN_ERANGE beyond the end.
    cn_err (*read)(struct cn_store_file *file, uint64_t offset, void *data, size_t size);

    // Makes the file durable and visible under its name, replacing an older one. Takes file. After
    // an error either of the two may be visible.
    cn_err (*commit)(struct cn_store_file *file);

    // Drops the file aside, or ends reading. Takes file; NULL is fine.
    void (*abort)(struct cn_store_file *file);

    // The whole of a visible file; *data is malloced, the caller frees it. CN_ENOTFOUND when there
    // is none, CN_ERANGE when it is larger than limit: nothing is allocated then.
    cn_err (*load)(struct cn_store *store, const char *name, size_t limit, uint8_t **data,
                   size_t *size);

    // Durable. No error when there is no such file.
    cn_err (*remove)(struct cn_store *store, const char *name);

    // Calls visit for each visible file, in the order of names; an error of visit ends the walk.
    cn_err (*list)(struct cn_store *store, cn_err (*visit)(void *context, const char *name),
                   void *context);
};

struct cn_store {
    const struct cn_store_ops *ops;
};

// Writes a whole file in one call: create, write, commit.
cn_err cn_store_replace(struct cn_store *store, const char *name, const void *data, size_t size);

// A file that is written piece by piece, small ones together.
struct cn_store_writer {
    struct cn_store *store;
    struct cn_store_file *file;
    uint64_t offset; // of what waits
    size_t waiting;
    uint8_t bytes[16u << 10];
};

cn_err cn_store_writer_begin(struct cn_store *store, const char *name,
                             struct cn_store_writer *writer);
cn_err cn_store_writer_put(struct cn_store_writer *writer, const void *piece, size_t size);

// Makes the file visible; after an error, which it returns, drops it.
cn_err cn_store_writer_end(struct cn_store_writer *writer, cn_err err);
