#include "runtime/round/care_file.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/port/crypto.h"

#define FILE_NAME "care"
#define BODY_SIZE 40
#define FILE_SIZE (BODY_SIZE + 4)
#define DAY_MS UINT64_C(86400000)

static const uint8_t magic[8] = {'C', 'N', 'C', 'A', 'R', 'E', '1', '\n'};

void cn_care_file_load(struct cn_store *store, struct cn_care_memory *memory)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, FILE_NAME, FILE_SIZE, &bytes, &size);

    *memory = (struct cn_care_memory){0};
    if (err == CN_ENOTFOUND)
        return;
    if (!err && size == FILE_SIZE && memcmp(bytes, magic, sizeof(magic)) == 0 &&
        cn_get_u32(bytes + BODY_SIZE) == cn_crc32c(0, bytes, BODY_SIZE) &&
        cn_get_u64(bytes + 8) <= DAY_MS)
        *memory = (struct cn_care_memory){
            .elapsed_ms = cn_get_u64(bytes + 8),
            .worn = cn_get_u64(bytes + 16),
            .clock_s = cn_get_u64(bytes + 24),
            .round = cn_get_u32(bytes + 32),
            .version = cn_get_u32(bytes + 36),
        };
    else
        cn_log(CN_LOG_WARN, "care",
               "the file '%s' cannot be used (%s); the wear of today begins anew", FILE_NAME,
               cn_err_text(err ? err : CN_EFORMAT));
    free(bytes);
}

cn_err cn_care_file_save(struct cn_store *store, const struct cn_care_memory *memory)
{
    uint8_t bytes[FILE_SIZE];

    memcpy(bytes, magic, sizeof(magic));
    cn_put_u64(bytes + 8, memory->elapsed_ms);
    cn_put_u64(bytes + 16, memory->worn);
    cn_put_u64(bytes + 24, memory->clock_s);
    cn_put_u32(bytes + 32, memory->round);
    cn_put_u32(bytes + 36, memory->version);
    cn_put_u32(bytes + BODY_SIZE, cn_crc32c(0, bytes, BODY_SIZE));
    return cn_store_replace(store, FILE_NAME, bytes, sizeof(bytes));
}
