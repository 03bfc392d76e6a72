// small_file.h - small files of the store for state that a board should keep but can lose. A file
// has a magic of 8 bytes, a body of fixed size and a CRC-32C over both.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/store.h"

#define CN_SMALL_FILE_MAGIC 8
#define CN_SMALL_FILE_MAX 256 // most bytes of a body

// Loads the body. Returns false when there is no file or it is damaged. For a damaged file it logs
// `lost`, which says what starts again, under the file's name.
bool cn_small_file_load(struct cn_store *store, const char *name,
                        const char magic[CN_SMALL_FILE_MAGIC], const char *lost, void *body,
                        size_t size);

// Saves durably. After an error the stored file is intact.
cn_err cn_small_file_save(struct cn_store *store, const char *name,
                          const char magic[CN_SMALL_FILE_MAGIC], const void *body, size_t size);
