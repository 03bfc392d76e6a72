// data_files.h - data that arrives as many files: the names that a * in a path stands for.
//
// The last part of a path may have one *, as in "spool/*.npz:x" or "spool/images-*.npy". Each text
// that the * can stand for is the name of a shard, unless it begins with a dot. A shard consists of
// one file for each input and one for the labels, with the same name; it is present when all of
// them are. Write a file under a name that does not fit, and rename it when it is complete.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define CN_DATA_FILE_NAME_SIZE 128
#define CN_DATA_FILE_PATH_SIZE 1024

struct cn_data_file {
    char name[CN_DATA_FILE_NAME_SIZE]; // text in place of the *; "" for plain files
    bool apart;                        // all of its samples are held out
    bool refused;      // damaged, or does not fit the model: left out while it is present
    uint64_t bytes;    // size of all its files, to recognize it
    uint32_t checksum; // CRC-32 of all its files, to recognize it
};

struct cn_data_files {
    struct cn_data_file *items; // owned
    size_t count;
};

// Frees the list. Accepts zeros.
void cn_data_files_deinit(struct cn_data_files *shards);

// Appends a copy of shard. CN_ENOMEM.
cn_err cn_data_files_add(struct cn_data_files *shards, const struct cn_data_file *shard);

// Returns the entry that has this name and this value of apart, or NULL. The entry is valid until
// the next add.
const struct cn_data_file *cn_data_files_get(const struct cn_data_files *shards, const char *name,
                                             bool apart);

// Returns whether a * can stand for this text.
bool cn_data_files_is_name(const char *name);

// Returns whether the path has a *.
bool cn_data_files_is_pattern(const char *path);

// Adds an entry for each name that the path's * stands for in its folder, in the order of names.
// Fills in only name and apart. CN_EINVAL when the path has no *, a second one, or one before the
// last part. CN_ERANGE when the path is too long. CN_ENOMEM, or an error of cn_platform_list.
cn_err cn_data_files_find(const char *path, bool apart, struct cn_data_files *shards);

// Returns the path with name in place of its *, if it has one. CN_ERANGE when it is too long.
cn_err cn_data_files_path(const char *path, const char *name, char result[CN_DATA_FILE_PATH_SIZE]);
