// A saved part of an upload: a byte for its number, the bytes of its file. The file is removed, or
// its chunks are those that its bits say and it stays as it is.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool.h"
#include "aggregator/store/spool_name.h"
#include "runtime/base/log.h"
#include "tests/support/flaky_store.h"

#define CHUNK 16
#define FRAME_MAX 200000
#define BITMAP_AT 96 // behind magic, run, round, size, digest, base and chunk size

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cn_spool *open_spool(struct cn_flaky_store *store)
{
    const struct cn_spool_config config = {
        .store = &store->store, .frame_max = FRAME_MAX, .chunk_size = CHUNK, .expiry_ms = 1000};
    struct cn_spool *spool;
    if (cn_spool_open(&config, &spool))
        abort(); // a file's bytes never stop the aggregator
    return spool;
}

// Chunks that the bits say are there, of those that the frame has.
static uint32_t count_chunks(const uint8_t *file, uint32_t part, uint64_t size)
{
    uint32_t all = (uint32_t)((size + CHUNK - 1) / CHUNK), count = 0;
    for (uint32_t i = 0; i < CN_SPOOL_PART && part * CN_SPOOL_PART + i < all; i++)
        count += file[BITMAP_AT + i / 8] >> (i % 8) & 1;
    return count;
}

// Who declares the frame goes on from the file.
static void check_upload(struct cn_spool *spool, const uint8_t *file, size_t size, uint32_t part)
{
    const uint64_t part_size = (uint64_t)CN_SPOOL_PART * CHUNK;
    struct cn_declare_request declared = {
        .run = cn_get_u64(file + 8), .round = cn_get_u32(file + 16), .size = cn_get_u64(file + 20)};
    struct cn_upload_status status = {0};
    struct cn_spooled *upload;
    uint8_t *frame;
    uint64_t rest = declared.size - part * part_size;
    if (cn_get_u32(file + BITMAP_AT - 4) != CHUNK || part * part_size >= declared.size ||
        size != BITMAP_AT + CN_SPOOL_PART / 8 + (rest < part_size ? rest : part_size))
        abort();
    memcpy(declared.digest, file + 28, CN_DIGEST_SIZE);
    memcpy(declared.base, file + 28 + CN_DIGEST_SIZE, CN_DIGEST_SIZE);
    if (cn_spool_declare(spool, "board", "g", &declared, 1, &upload))
        abort();
    if (upload->received != count_chunks(file, part, declared.size))
        abort();
    cn_spool_describe(upload, 0, CN_RANGE_MAX, &status);
    if (cn_spool_read(spool, upload, &frame) == CN_OK) {
        if (upload->received != upload->chunk_count)
            abort();
        free(frame);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[CN_SPOOL_NAME_SIZE];
    struct cn_flaky_store store;
    size_t kept_size;
    if (!size)
        return 0;
    cn_log_set_level(CN_LOG_ERROR);
    snprintf(name, sizeof(name), "round-3-g.part-%u", data[0]);
    cn_flaky_store_init(&store);
    if (cn_store_replace(&store.store, name, data + 1, size - 1))
        abort();
    struct cn_spool *spool = open_spool(&store);
    bool kept = cn_flaky_store_bytes(&store, name, &kept_size) != NULL;
    if (kept && data[8] == '1') // the last byte of the magic of version 1, which names no board
        check_upload(spool, data + 1, size - 1, data[0]);
    cn_spool_close(spool);
    const uint8_t *file = cn_flaky_store_bytes(&store, name, &kept_size);
    if (kept && (!file || kept_size != size - 1 || memcmp(file, data + 1, kept_size) != 0))
        abort();
    cn_flaky_store_deinit(&store);
    return 0;
}
