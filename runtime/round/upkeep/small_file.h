// small_file.h - a file of the store with a magic of 8 bytes, a body of a fixed size and a CRC-32C
// over both, for what a board should remember but can lose.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/store.h"

#define CN_SMALL_FILE_MAGIC 8
#define CN_SMALL_FILE_MAX 256 // bytes of a body

// Fills body. False when there is no such file, and when it is not whole: what then begins anew is
// said in the log, with the name as its source.
bool cn_small_file_load(struct cn_store *store, const char *name,
                        const char magic[CN_SMALL_FILE_MAGIC], const char *lost, void *body,
                        size_t size);

// Durable. The stored one is intact after an error.
cn_err cn_small_file_save(struct cn_store *store, const char *name,
                          const char magic[CN_SMALL_FILE_MAGIC], const void *body, size_t size);
