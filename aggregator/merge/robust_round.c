#include "aggregator/merge/robust_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/stale.h"
#include "aggregator/store/spool_name.h"
#include "runtime/base/log.h"
#include "runtime/port/crypto.h"

#define PIECE_SIZE ((size_t)64 << 10) // bytes that are digested at a time

struct cn_robust_source {
    char group[CN_NAME_SIZE];
    struct cn_store *store;
    struct cn_store_file *file;
};

static cn_err read_file(void *context, uint64_t offset, void *data, size_t size)
{
    const struct cn_robust_source *source = context;

    return source->store->ops->read(source->file, offset, data, size);
}

cn_err cn_robust_round_init(struct cn_robust_round *round, size_t capacity)
{
    *round = (struct cn_robust_round){0};
    round->updates = calloc(capacity, sizeof(*round->updates));
    round->sources = calloc(capacity, sizeof(*round->sources));
    return round->updates && round->sources ? CN_OK : CN_ENOMEM;
}

void cn_robust_round_deinit(struct cn_robust_round *round)
{
    for (size_t i = 0; i < round->count; i++)
        round->sources[i].store->ops->abort(round->sources[i].file);
    free(round->updates);
    free(round->sources);
    *round = (struct cn_robust_round){0};
}

// Compares the digest of a file's bytes with the accepted one.
static cn_err check_digest(const struct cn_robust_source *source, uint64_t size,
                           const uint8_t accepted[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t *piece = malloc(PIECE_SIZE);
    cn_err err = piece ? CN_OK : CN_ENOMEM;

    if (err)
        return err;
    cn_sha256_init(&sha);
    for (uint64_t done = 0; done < size && !err; done += PIECE_SIZE) {
        size_t part = size - done < PIECE_SIZE ? (size_t)(size - done) : PIECE_SIZE;

        err = source->store->ops->read(source->file, done, piece, part);
        if (!err)
            cn_sha256_add(&sha, piece, part);
    }
    free(piece);
    cn_sha256_finish(&sha, digest);
    return !err && memcmp(digest, accepted, CN_DIGEST_SIZE) != 0 ? CN_EDIGEST : err;
}

cn_err cn_robust_round_add(struct cn_robust_round *round, struct cn_store *store,
                           const struct cn_ledger_contribution *accepted,
                           const struct cn_caps_entry *entry)
{
    struct cn_robust_source *source = &round->sources[round->count];
    char name[CN_SPOOL_NAME_SIZE];
    uint64_t size;

    cn_spool_name(accepted->round, accepted->group, name);
    source->store = store;
    cn_err err = store->ops->open(store, name, &source->file, &size);
    if (err)
        return err;
    err = size == accepted->size ? check_digest(source, size, accepted->digest) : CN_EDIGEST;
    if (err) {
        if (err == CN_EDIGEST)
            cn_log(CN_LOG_ERROR, "merge", "%s: %s", name, cn_err_text(err));
        store->ops->abort(source->file);
        return err;
    }
    snprintf(source->group, sizeof(source->group), "%s", accepted->group);
    round->updates[round->count++] = (struct cn_robust_update){
        .group = source->group,
        .source = {read_file, source, (size_t)size},
        .weight = entry->weight,
        .norm = entry->norm,
        .statistics_norm = entry->statistics_norm,
        .statistics_out = entry->statistics_out,
        .stale = accepted->version > accepted->round
                     ? cn_stale_factor(accepted->version - accepted->round)
                     : CN_STALE_ONE,
    };
    return CN_OK;
}

uint64_t cn_robust_round_weight(const struct cn_robust_round *round)
{
    uint64_t weight = 0;

    for (size_t i = 0; i < round->count; i++)
        weight += round->updates[i].weight;
    return weight;
}
