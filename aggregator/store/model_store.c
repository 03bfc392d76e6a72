#include "aggregator/store/model_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/staleness.h"
#include "aggregator/store/spool_name.h"
#include "runtime/base/log.h"
#include "runtime/update/variate.h"

// A blob that is kept beside the newest and the previous version: an older delta, the snapshot, or
// the control variate.
struct kept_blob {
    uint32_t number; // version that it belongs to; 0: none
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t *data; // owned
    size_t size;
};

struct cn_model_store {
    struct cn_model_store_config config;
    uint8_t graph_digest[CN_DIGEST_SIZE];
    struct cn_model newest, previous;
    struct kept_blob older[CN_CHAIN_MAX]; // the delta of version n is in n % CN_CHAIN_MAX
    struct kept_blob snapshot;
    struct kept_blob control; // the server's control variate
};

// Moves the delta of model to the older ones.
static void keep_delta(struct cn_model_store *models, struct cn_model *model)
{
    struct kept_blob *older = &models->older[model->number % CN_CHAIN_MAX];
    if (!model->delta)
        return;
    free(older->data);
    *older = (struct kept_blob){
        .number = model->number, .data = model->delta, .size = model->delta_size};
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
            (struct kept_blob){.number = model->number, .data = frame.data, .size = frame.size};
        cn_crypto_digest(frame.data, frame.size, models->snapshot.digest);
    } else {
        cn_buffer_deinit(&frame);
        cn_log(CN_LOG_DEBUG, "model_store", "version %u has no snapshot", model->number);
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
        struct cn_ledger_version version = {0};
        struct cn_model model = {.number = number};
        cn_err err = cn_ledger_find_version(models->config.ledger, number, &version);
        memcpy(model.delta_digest, version.delta_digest, CN_DIGEST_SIZE);
        if (!err)
            err = cn_model_load_delta(models->config.store, models->config.layout, &model);
        if (!err)
            keep_delta(models, &model);
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
    cn_err err = cn_model_save(models->config.store, models->config.layout, model);
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

cn_err cn_model_store_offer(struct cn_model_store *models, const float *server,
                            struct cn_round_control *control)
{
    const struct cn_model *newest = &models->newest;
    struct kept_blob *offered = &models->control;
    struct cn_buffer frame;

    free(offered->data);
    *offered = (struct kept_blob){0};
    if (!server)
        return CN_OK;
    cn_buffer_init(&frame, cn_update_size_max(models->config.layout));
    cn_err err =
        cn_variate_encode(models->config.layout, cn_ledger_identity(models->config.ledger)->run,
                          newest->number, newest->digest, server, NULL, &frame);
    if (err) {
        cn_buffer_deinit(&frame);
        return err;
    }
    *offered = (struct kept_blob){.number = newest->number, .data = frame.data, .size = frame.size};
    cn_crypto_digest(frame.data, frame.size, offered->digest);
    control->size = frame.size;
    memcpy(control->digest, offered->digest, CN_DIGEST_SIZE);
    return CN_OK;
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
    return cn_staleness_keeps(config->ledger, number, group, config->keep_rounds, walk->newest)
               ? CN_OK
               : collect(walk, name);
}

cn_err cn_model_store_prune(struct cn_model_store *models, uint32_t best)
{
    if (models->config.keep_rounds == 0 && models->config.keep_versions == 0)
        return CN_OK;
    struct cn_ruling waiting; // zeroed when none waits
    cn_err err = cn_rulings_waiting_rollback(models->config.ledger, &waiting);
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
    free(models->control.data);
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
        {models->control.digest, models->control.data, models->control.size,
         models->control.number},
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
        const struct kept_blob *older = &models->older[i];
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
    const struct kept_blob *older = &models->older[number % CN_CHAIN_MAX];
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
    const struct kept_blob *kept = &models->snapshot;
    *snapshot = (struct cn_snapshot){0};
    bool next = from + 1 >= models->newest.number && models->newest.delta;
    if (!kept->data || kept->number <= from || next)
        return;
    snapshot->number = kept->number;
    snapshot->size = kept->size;
    memcpy(snapshot->digest, kept->digest, CN_DIGEST_SIZE);
}
