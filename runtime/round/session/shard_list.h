// shard_list.h - the shards that a round has, as bytes: the file "data.list" of CHECKPOINT.md.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/data/shards.h"

#define CN_SHARD_LIST_MAX ((size_t)64 << 20)

struct cn_shard_list {
    uint64_t run;
    uint32_t lineage, round;
    struct cn_shards shards; // owned; cn_shards_deinit
};

// Appends to out, within its limit.
cn_err cn_shard_list_encode(const struct cn_shard_list *list, struct cn_buffer *out);

// Total: any bytes are a list that encodes to the same bytes, or CN_EFORMAT (CN_ENOMEM). After an
// error list is empty.
cn_err cn_shard_list_decode(const uint8_t *bytes, size_t size, struct cn_shard_list *list);
