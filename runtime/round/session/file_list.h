// file_list.h - encodes the list of the data files of a round: the file "data.list" of
// CHECKPOINT.md. Data files of one name that arrived together are a shard of data.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/data/data_files.h"

#define CN_FILE_LIST_MAX ((size_t)64 << 20)

struct cn_file_list {
    uint64_t run;
    uint32_t lineage, round;
    struct cn_data_files shards; // owned; free with cn_data_files_deinit
};

// Appends the encoded list to out. Fails when it exceeds out's limit.
cn_err cn_file_list_encode(const struct cn_file_list *list, struct cn_buffer *out);

// Decodes any bytes. Returns CN_EFORMAT, or CN_ENOMEM, for bytes that are not an encoded list.
// After an error list is empty.
cn_err cn_file_list_decode(const uint8_t *bytes, size_t size, struct cn_file_list *list);
