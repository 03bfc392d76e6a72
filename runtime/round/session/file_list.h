// file_list.h - the shards that a round has, as bytes: the file "data.list" of CHECKPOINT.md.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/data/data_files.h"

#define CN_FILE_LIST_MAX ((size_t)64 << 20)

struct cn_file_list {
    uint64_t run;
    uint32_t lineage, round;
    struct cn_data_files shards; // owned; cn_data_files_deinit
};

// Appends to out, within its limit.
cn_err cn_file_list_encode(const struct cn_file_list *list, struct cn_buffer *out);

// Total: any bytes are a list that encodes to the same bytes, or CN_EFORMAT (CN_ENOMEM). After an
// error list is empty.
cn_err cn_file_list_decode(const uint8_t *bytes, size_t size, struct cn_file_list *list);
