#include "aggregator/store/model_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool.h"
#include "runtime/base/log.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

#define NAME_SIZE 48

// A blob that is kept beside the newest and the previous version: an older delta, or the snapshot.
struct older {
    uint32_t number; // version that it belongs to; 0: none
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t *data; // owned
    size_t size;
};

struct cn_model_store {
    struct cn_model_store_config config;
    uint8_t graph_digest[CN_DIGEST_SIZE];
    struct cn_model newest, previous;
    struct older older[CN_CHAIN_MAX]; // the delta of version n is in n % CN_CHAIN_MAX
    struct older snapshot;
};

float *cn_model_weights(const struct cn_model *model)
{
    // malloc aligns bytes, and the header's 88 bytes keep the alignment that float needs.
    return (float *)(void *)(model->bytes + CN_VERSION_HEADER_SIZE);
}

void cn_model_deinit(struct cn_model *model)
{
    free(model->bytes);
    free(model->residual);
    free(model->state);
    free(model->delta);
    *model = (struct cn_model){0};
}

void cn_model_take_delta(struct cn_model *model, struct cn_buffer *frame)
{
    model->delta = frame->data;
    model->delta_size = frame->size;
    cn_crypto_digest(model->delta, model->delta_size, model->delta_digest);
    cn_buffer_init(frame, 0);
}

cn_err cn_model_seal(struct cn_model *model, const uint8_t graph[CN_DIGEST_SIZE],
                     const struct cn_layout *layout, const float *weights)
{
    struct cn_version_header header = {.count = layout->total};
    memcpy(header.graph, graph, CN_DIGEST_SIZE);
    memcpy(header.parent, model->parent, CN_DIGEST_SIZE);
    model->size = CN_VERSION_HEADER_SIZE + layout->total * sizeof(float);
    model->bytes = malloc(model->size);
    if (!model->bytes)
        return CN_ENOMEM;
    cn_version_put_header(&header, model->bytes);
    memcpy(cn_model_weights(model), weights, layout->total * sizeof(float));
    cn_version_digest(&header, weights, model->digest);
    return CN_OK;
}

static void make_name(uint32_t number, const char *kind, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "version-%" PRIu32 ".%s", number, kind);
}

static cn_err save(struct cn_store *store, uint32_t number, const char *kind, const void *data,
                   size_t size)
{
    char name[NAME_SIZE];
    make_name(number, kind, name);
    return cn_store_replace(store, name, data, size);
}

cn_err cn_model_save_first(struct cn_store *store, const struct cn_model *model)
{
    return save(store, 0, "full", model->bytes, model->size);
}

static cn_err load(struct cn_store *store, uint32_t number, const char *kind, size_t limit,
                   uint8_t **data, size_t *size)
{
    char name[NAME_SIZE];
    make_name(number, kind, name);
    return store->ops->load(store, name, limit, data, size);
}

static cn_err check_digest(uint32_t number, const char *kind, const uint8_t *data, size_t size,
                           const uint8_t *expected)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(data, size, digest);
    if (memcmp(digest, expected, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    cn_log(CN_LOG_ERROR, "model_store", "version-%" PRIu32 ".%s is damaged", number, kind);
    return CN_EDIGEST;
}

static cn_err load_full(struct cn_store *store, const struct cn_layout *layout,
                        struct cn_model *model)
{
    size_t expected = CN_VERSION_HEADER_SIZE + layout->total * sizeof(float);
    cn_err err = load(store, model->number, "full", expected, &model->bytes, &model->size);
    if (err)
        return err;
    if (model->size != expected)
        return CN_EDIGEST;
    return check_digest(model->number, "full", model->bytes, model->size, model->digest);
}

static cn_err load_delta(struct cn_store *store, const struct cn_layout *layout,
                         struct cn_model *model)
{
    cn_err err = load(store, model->number, "delta", cn_update_size_max(layout), &model->delta,
                      &model->delta_size);
    return err ? err
               : check_digest(model->number, "delta", model->delta, model->delta_size,
                              model->delta_digest);
}

static cn_err load_floats(struct cn_store *store, uint32_t number, const char *kind, size_t count,
                          float **floats)
{
    uint8_t *data = NULL;
    size_t size = 0;
    cn_err err = load(store, number, kind, count * sizeof(float), &data, &size);
    if (err)
        return err;
    *floats = (float *)(void *)data;
    return size == count * sizeof(float) ? CN_OK : CN_EDIGEST;
}

// recorded is zero if an older program wrote the ledger; it kept no state except the residual.
static cn_err load_state(struct cn_store *store, const struct cn_layout *layout, size_t state_rows,
                         const uint8_t recorded[CN_DIGEST_SIZE], struct cn_model *model)
{
    static const uint8_t none[CN_DIGEST_SIZE];
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = load_floats(store, model->number, "residual", layout->total, &model->residual);
    if (!err && state_rows)
        err = load_floats(store, model->number, "state", state_rows * layout->total, &model->state);
    model->state_rows = model->state ? state_rows : 0;
    if (err || memcmp(recorded, none, CN_DIGEST_SIZE) == 0)
        return err;
    cn_model_state_digest(model, layout, digest);
    if (memcmp(digest, recorded, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    cn_log(CN_LOG_ERROR, "model_store", "version-%" PRIu32 ".residual%s is damaged", model->number,
           state_rows ? " or the file .state of that version" : "");
    return CN_EDIGEST;
}

void cn_model_state_digest(const struct cn_model *model, const struct cn_layout *layout,
                           uint8_t digest[CN_DIGEST_SIZE])
{
    size_t row = layout->total * sizeof(float);
    struct cn_sha256 sha;
    memset(digest, 0, CN_DIGEST_SIZE);
    if (!model->residual)
        return;
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, model->residual, row);
    cn_sha256_add(&sha, model->state, model->state_rows * row);
    cn_sha256_finish(&sha, digest);
}

static cn_err load_recorded(struct cn_store *store, const struct cn_layout *layout,
                            const struct cn_ledger_version *version, struct cn_model *model)
{
    *model = (struct cn_model){.number = version->number};
    memcpy(model->digest, version->digest, CN_DIGEST_SIZE);
    memcpy(model->parent, version->parent, CN_DIGEST_SIZE);
    memcpy(model->delta_digest, version->delta_digest, CN_DIGEST_SIZE);
    return load_full(store, layout, model);
}

cn_err cn_model_load_weights(struct cn_store *store, struct cn_ledger *ledger,
                             const struct cn_layout *layout, uint32_t number,
                             struct cn_model *model)
{
    struct cn_ledger_version version;
    memset(model, 0, sizeof(*model));
    cn_err err = cn_ledger_find_version(ledger, number, &version);
    if (!err)
        err = load_recorded(store, layout, &version, model);
    if (err)
        cn_model_deinit(model);
    return err;
}

cn_err cn_model_load(struct cn_store *store, struct cn_ledger *ledger,
                     const struct cn_layout *layout, size_t state_rows, uint32_t number,
                     struct cn_model *model)
{
    struct cn_ledger_version version;
    memset(model, 0, sizeof(*model));
    cn_err err = cn_ledger_find_version(ledger, number, &version);
    if (!err)
        err = load_recorded(store, layout, &version, model);
    if (!err && version.delta_size)
        err = load_delta(store, layout, model);
    if (!err && number > 0)
        err = load_state(store, layout, state_rows, version.state_digest, model);
    if (err)
        cn_model_deinit(model);
    return err;
}

static cn_err save_files(struct cn_model_store *models, const struct cn_model *model)
{
    struct cn_store *store = models->config.store;
    size_t row = models->config.layout->total * sizeof(float);
    cn_err err = save(store, model->number, "full", model->bytes, model->size);
    if (err || model->number == 0)
        return err;
    if (model->delta)
        err = save(store, model->number, "delta", model->delta, model->delta_size);
    if (!err)
        err = save(store, model->number, "residual", model->residual, row);
    if (!err && model->state_rows)
        err = save(store, model->number, "state", model->state, model->state_rows * row);
    return err;
}

// Moves the delta of model to the older ones.
static void keep_delta(struct cn_model_store *models, struct cn_model *model)
{
    struct older *older = &models->older[model->number % CN_CHAIN_MAX];
    if (!model->delta)
        return;
    free(older->data);
    *older =
        (struct older){.number = model->number, .data = model->delta, .size = model->delta_size};
    memcpy(older->digest, model->delta_digest, CN_DIGEST_SIZE);
    model->delta = NULL;
}

// Keeps the snapshot of a version that was rounded to one. It is computed from the weights, so no
// file has it. Without it a board only fetches more bytes, so a lack of memory is no error.
static void keep_snapshot(struct cn_model_store *models, const struct cn_model *model)
{
    const struct cn_layout *layout = models->config.layout;
    size_t size = layout->total * sizeof(float);
    uint32_t every = models->config.snapshot_every;
    if (!every || model->number == 0 || (model->number % every && model->delta))
        return;
    float *weights = malloc(size + 1);
    struct cn_buffer frame;
    cn_buffer_init(&frame, cn_update_size_max(layout));
    cn_err err = weights ? CN_OK : CN_ENOMEM;
    if (!err) {
        memcpy(weights, cn_model_weights(model), size);
        err = cn_update_snapshot(cn_ledger_identity(models->config.ledger)->run, model->number,
                                 model->parent, layout, weights, &frame);
    }
    if (!err && memcmp(weights, cn_model_weights(model), size) == 0) {
        free(models->snapshot.data);
        models->snapshot =
            (struct older){.number = model->number, .data = frame.data, .size = frame.size};
        cn_crypto_digest(frame.data, frame.size, models->snapshot.digest);
    } else {
        cn_buffer_deinit(&frame);
        cn_log(CN_LOG_DEBUG, "model_store", "version %" PRIu32 " has no snapshot", model->number);
    }
    free(weights);
}

// After a restart: makes the snapshot of the newest version that may have one and is kept.
static void load_snapshot(struct cn_model_store *models)
{
    uint32_t every = models->config.snapshot_every, newest = models->newest.number;
    struct cn_model model;
    if (!every || newest < every)
        return;
    if (newest % every == 0 || !models->newest.delta) {
        keep_snapshot(models, &models->newest);
        return;
    }
    cn_err err = cn_model_load_weights(models->config.store, models->config.ledger,
                                       models->config.layout, newest - newest % every, &model);
    if (err)
        return;
    keep_snapshot(models, &model);
    cn_model_deinit(&model);
}

// After a restart: loads the older deltas. Without one that is skipped, boards fetch full versions.
static void load_deltas(struct cn_model_store *models)
{
    uint32_t newest = models->newest.number;
    for (uint32_t number = newest > CN_CHAIN_MAX ? newest - CN_CHAIN_MAX : 1; number < newest;
         number++) {
        struct cn_ledger_version version;
        struct cn_model model = {.number = number};
        cn_err err = cn_ledger_find_version(models->config.ledger, number, &version);
        if (!err)
            err = load(models->config.store, number, "delta",
                       cn_update_size_max(models->config.layout), &model.delta, &model.delta_size);
        if (!err)
            err =
                check_digest(number, "delta", model.delta, model.delta_size, version.delta_digest);
        if (!err) {
            memcpy(model.delta_digest, version.delta_digest, CN_DIGEST_SIZE);
            keep_delta(models, &model);
        }
        cn_model_deinit(&model);
    }
}

cn_err cn_model_store_add(struct cn_model_store *models, struct cn_model *model, uint64_t bytes_in,
                          uint64_t bytes_out)
{
    struct cn_ledger_version version = {
        .number = model->number,
        .delta_size = model->delta_size,
        .bytes_in = bytes_in,
        .bytes_out = bytes_out,
    };
    memcpy(version.digest, model->digest, CN_DIGEST_SIZE);
    memcpy(version.parent, model->parent, CN_DIGEST_SIZE);
    memcpy(version.delta_digest, model->delta_digest, CN_DIGEST_SIZE);
    cn_model_state_digest(model, models->config.layout, version.state_digest);
    cn_err err = save_files(models, model);
    if (!err)
        err = model->ruling ? cn_ruling_add(models->config.ledger, &version, model->ruling)
                            : cn_ledger_add_version(models->config.ledger, &version);
    if (err)
        return err;
    keep_snapshot(models, model);
    keep_delta(models, &models->previous);
    cn_model_deinit(&models->previous);
    models->previous = models->newest;
    free(models->previous.residual); // boards fetch the rest of it
    free(models->previous.state);
    models->previous.residual = models->previous.state = NULL;
    models->newest = *model;
    models->newest.ruling = NULL;
    memset(model, 0, sizeof(*model));
    return CN_OK;
}

void cn_model_store_adapt(struct cn_model_store *models, uint32_t snapshot_every)
{
    models->config.snapshot_every = snapshot_every;
}

static cn_err make_first(struct cn_model_store *models)
{
    struct cn_model first = {0};
    cn_err err =
        cn_model_seal(&first, models->graph_digest, models->config.layout, models->config.initial);
    if (!err)
        err = cn_model_store_add(models, &first, 0, 0);
    cn_model_deinit(&first);
    return err;
}

// --- removing files ---

struct walk {
    struct cn_model_store *models;
    struct cn_buffer names;        // each with its terminating 0
    uint32_t newest, best, wanted; // wanted: by a rollback that waits; 0: none
};

static cn_err collect(struct walk *walk, const char *name)
{
    return cn_buffer_append(&walk->names, name, strlen(name) + 1);
}

static cn_err remove_collected(struct walk *walk)
{
    struct cn_store *store = walk->models->config.store;
    cn_err err = CN_OK;
    for (size_t at = 0; at < walk->names.size && !err;
         at += strlen((char *)walk->names.data + at) + 1)
        err = store->ops->remove(store, (char *)walk->names.data + at);
    return err;
}

static cn_err run_walk(struct walk *walk, cn_err (*visit)(void *context, const char *name))
{
    struct cn_store *store = walk->models->config.store;
    cn_buffer_init(&walk->names, 1u << 26);
    cn_err err = store->ops->list(store, visit, walk);
    if (!err)
        err = remove_collected(walk);
    cn_buffer_deinit(&walk->names);
    return err;
}

static bool is_version_file(const char *name, uint32_t *number)
{
    char kind[16];
    return sscanf(name, "version-%" SCNu32 ".%15s", number, kind) == 2; // NOLINT(cert-err34-c)
}

static cn_err collect_orphan(void *context, const char *name)
{
    struct walk *walk = context;
    struct cn_ledger_contribution contribution;
    uint32_t number;
    char group[CN_NAME_SIZE];
    if (is_version_file(name, &number)) {
        struct cn_ledger_version version;
        cn_err err = cn_ledger_find_version(walk->models->config.ledger, number, &version);
        return err == CN_ENOTFOUND ? collect(walk, name) : err;
    }
    if (cn_spool_parse_name(name, &number, group) != CN_OK)
        return CN_OK;
    cn_err err =
        cn_ledger_find_contribution(walk->models->config.ledger, number, group, &contribution);
    return err == CN_ENOTFOUND ? collect(walk, name) : err;
}

static cn_err collect_old(void *context, const char *name)
{
    struct walk *walk = context;
    const struct cn_model_store_config *config = &walk->models->config;
    uint32_t number;
    char group[CN_NAME_SIZE];
    if (is_version_file(name, &number)) {
        bool keep = number == 0 || number == walk->best || number == walk->wanted ||
                    config->keep_versions == 0 || number + config->keep_versions > walk->newest;
        return keep ? CN_OK : collect(walk, name);
    }
    if (cn_spool_parse_name(name, &number, group) != CN_OK)
        return CN_OK;
    bool keep = config->keep_rounds == 0 || number + config->keep_rounds > walk->newest;
    return keep ? CN_OK : collect(walk, name);
}

cn_err cn_model_store_prune(struct cn_model_store *models, uint32_t best)
{
    if (models->config.keep_rounds == 0 && models->config.keep_versions == 0)
        return CN_OK;
    struct cn_ruling waiting; // zeroed when none waits
    cn_err err = cn_rollback_waiting(models->config.ledger, &waiting);
    if (err && err != CN_ENOTFOUND)
        return err;
    struct walk walk = {models, .newest = models->newest.number, .best = best,
                        .wanted = waiting.source};
    return run_walk(&walk, collect_old);
}

// --- opening and closing ---

static cn_err start(struct cn_model_store *models)
{
    struct cn_ledger_version newest;
    struct walk walk = {.models = models};
    cn_err err = run_walk(&walk, collect_orphan);
    if (err)
        return err;
    err = cn_ledger_newest_version(models->config.ledger, &newest);
    if (err == CN_ENOTFOUND)
        return make_first(models);
    if (err)
        return err;
    err = cn_model_load(models->config.store, models->config.ledger, models->config.layout,
                        models->config.state_rows, newest.number, &models->newest);
    if (!err) {
        load_deltas(models);
        load_snapshot(models);
    }
    return err;
}

cn_err cn_model_store_open(const struct cn_model_store_config *config,
                           struct cn_model_store **models)
{
    *models = NULL;
    struct cn_model_store *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->config = *config;
    cn_crypto_digest(config->graph, config->graph_size, opened->graph_digest);
    cn_err err = start(opened);
    if (err) {
        cn_model_store_close(opened);
        return err;
    }
    *models = opened;
    return CN_OK;
}

void cn_model_store_close(struct cn_model_store *models)
{
    if (!models)
        return;
    cn_model_deinit(&models->newest);
    cn_model_deinit(&models->previous);
    for (size_t i = 0; i < CN_CHAIN_MAX; i++)
        free(models->older[i].data);
    free(models->snapshot.data);
    free(models);
}

const struct cn_model *cn_model_store_newest(const struct cn_model_store *models)
{
    return &models->newest;
}

const uint8_t *cn_model_store_graph_digest(const struct cn_model_store *models)
{
    return models->graph_digest;
}

size_t cn_model_store_graph_size(const struct cn_model_store *models)
{
    return models->config.graph_size;
}

const struct cn_layout *cn_model_store_layout(const struct cn_model_store *models)
{
    return models->config.layout;
}

cn_err cn_model_store_blob(const struct cn_model_store *models,
                           const uint8_t digest[CN_DIGEST_SIZE], const uint8_t **data, size_t *size,
                           uint32_t *version)
{
    const struct cn_model *newest = &models->newest, *previous = &models->previous;
    const struct {
        const uint8_t *digest, *data;
        size_t size;
        uint32_t version;
    } blobs[] = {
        {models->graph_digest, models->config.graph, models->config.graph_size, 0},
        {newest->digest, newest->bytes, newest->size, newest->number},
        {newest->delta_digest, newest->delta, newest->delta_size, newest->number},
        {previous->digest, previous->bytes, previous->size, previous->number},
        {previous->delta_digest, previous->delta, previous->delta_size, previous->number},
        {models->snapshot.digest, models->snapshot.data, models->snapshot.size,
         models->snapshot.number},
    };
    for (size_t i = 0; i < sizeof(blobs) / sizeof(blobs[0]); i++) {
        if (!blobs[i].data || memcmp(blobs[i].digest, digest, CN_DIGEST_SIZE) != 0)
            continue;
        *data = blobs[i].data;
        *size = blobs[i].size;
        *version = blobs[i].version;
        return CN_OK;
    }
    for (size_t i = 0; i < CN_CHAIN_MAX; i++) {
        const struct older *older = &models->older[i];
        if (!older->data || memcmp(older->digest, digest, CN_DIGEST_SIZE) != 0)
            continue;
        *data = older->data;
        *size = older->size;
        *version = older->number;
        return CN_OK;
    }
    return CN_ENOTFOUND;
}

// Finds the delta that makes a version older than the newest. Returns false when it is not kept.
static bool find_delta(const struct cn_model_store *models, uint32_t number, const uint8_t **digest,
                       size_t *size)
{
    const struct cn_model *previous = &models->previous;
    const struct older *older = &models->older[number % CN_CHAIN_MAX];
    if (previous->delta && previous->number == number) {
        *digest = previous->delta_digest;
        *size = previous->delta_size;
        return true;
    }
    *digest = older->digest;
    *size = older->size;
    return older->data && older->number == number && number > 0;
}

void cn_model_store_chain(const struct cn_model_store *models, uint32_t from,
                          struct cn_delta_chain *chain)
{
    uint32_t newest = models->newest.number;
    *chain = (struct cn_delta_chain){0};
    for (uint32_t i = 0; i < CN_CHAIN_MAX && newest > from + 1 + i; i++) {
        const uint8_t *digest;
        size_t size;
        if (!find_delta(models, newest - 1 - i, &digest, &size) || size > UINT32_MAX)
            return;
        memcpy(chain->digests[i], digest, CN_DIGEST_SIZE);
        chain->sizes[i] = (uint32_t)size;
    }
}

void cn_model_store_snapshot(const struct cn_model_store *models, uint32_t from,
                             struct cn_snapshot *snapshot)
{
    const struct older *kept = &models->snapshot;
    *snapshot = (struct cn_snapshot){0};
    bool next = from + 1 >= models->newest.number && models->newest.delta;
    if (!kept->data || kept->number <= from || next)
        return;
    snapshot->number = kept->number;
    snapshot->size = kept->size;
    memcpy(snapshot->digest, kept->digest, CN_DIGEST_SIZE);
}
