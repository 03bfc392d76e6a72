#include "runtime/round/upkeep/pause_file.h"

#include "runtime/base/bytes.h"
#include "runtime/round/upkeep/small_file.h"

#define FILE_NAME "care"
#define BODY_SIZE 32
#define DAY_MS UINT64_C(86400000)

static const char magic[] = "CNCARE1\n";

void cn_pause_file_load(struct cn_store *store, struct cn_pause_memory *memory)
{
    uint8_t body[BODY_SIZE];

    *memory = (struct cn_pause_memory){0};
    if (!cn_small_file_load(store, FILE_NAME, magic, "the wear of today starts from zero", body,
                            sizeof(body)))
        return;
    *memory = (struct cn_pause_memory){
        .elapsed_ms = cn_get_u64(body) < DAY_MS ? cn_get_u64(body) : DAY_MS,
        .worn = cn_get_u64(body + 8),
        .clock_s = cn_get_u64(body + 16),
        .round = cn_get_u32(body + 24),
        .version = cn_get_u32(body + 28),
    };
}

cn_err cn_pause_file_save(struct cn_store *store, const struct cn_pause_memory *memory)
{
    uint8_t body[BODY_SIZE];

    cn_put_u64(body, memory->elapsed_ms);
    cn_put_u64(body + 8, memory->worn);
    cn_put_u64(body + 16, memory->clock_s);
    cn_put_u32(body + 24, memory->round);
    cn_put_u32(body + 28, memory->version);
    return cn_small_file_save(store, FILE_NAME, magic, body, sizeof(body));
}
