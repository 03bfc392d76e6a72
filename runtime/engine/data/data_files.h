// data_files.h - files that come one after the other: what a * in a path stands for.
//
// The last part of a path may have one *, as in "spool/*.npz:x" or "spool/images-*.npy". All text
// that it can stand for and that does not begin with a dot is the name of a shard; a shard is there
// when all its files are (of inputs and labels, with the same name). So a file becomes visible by
// renaming it, from a name that does not fit, when it is complete.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define CN_DATA_FILE_NAME_SIZE 128
#define CN_DATA_FILE_PATH_SIZE 1024

struct cn_data_file {
    char name[CN_DATA_FILE_NAME_SIZE]; // "" for plain files
    bool apart;                        // all of it is held out
    bool refused;                      // damaged, or not of this model: left out while it is there
    uint64_t bytes;                    // of all its files, and their CRC-32: to know it again
    uint32_t checksum;
};

struct cn_data_files {
    struct cn_data_file *items; // owned
    size_t count;
};

void cn_data_files_deinit(struct cn_data_files *shards);
cn_err cn_data_files_add(struct cn_data_files *shards, const struct cn_data_file *shard);

// The entry with this name, or NULL.
const struct cn_data_file *cn_data_files_get(const struct cn_data_files *shards, const char *name,
                                             bool apart);

// Whether a * can stand for this text.
bool cn_data_files_is_name(const char *name);

bool cn_data_files_is_pattern(const char *path);

// Adds what the path's * stands for in its folder, in the order of names. CN_EINVAL when there is a
// second *, or one before the last part.
cn_err cn_data_files_find(const char *path, bool apart, struct cn_data_files *shards);

// The path with name in place of the *; as it is without one. CN_ERANGE when it is too long.
cn_err cn_data_files_path(const char *path, const char *name, char result[CN_DATA_FILE_PATH_SIZE]);
