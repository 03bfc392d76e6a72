#include "aggregator/store/model_version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

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

void cn_model_file_name(uint32_t number, const char *kind, char name[CN_MODEL_NAME_SIZE])
{
    snprintf(name, CN_MODEL_NAME_SIZE, "version-%u.%s", number, kind);
}

static cn_err save(struct cn_store *store, uint32_t number, const char *kind, const void *data,
                   size_t size)
{
    char name[CN_MODEL_NAME_SIZE];
    cn_model_file_name(number, kind, name);
    return cn_store_replace(store, name, data, size);
}

cn_err cn_model_save_first(struct cn_store *store, const struct cn_model *model)
{
    return save(store, 0, "full", model->bytes, model->size);
}

static cn_err load(struct cn_store *store, uint32_t number, const char *kind, size_t limit,
                   uint8_t **data, size_t *size)
{
    char name[CN_MODEL_NAME_SIZE];
    cn_model_file_name(number, kind, name);
    return store->ops->load(store, name, limit, data, size);
}

static cn_err check_digest(uint32_t number, const char *kind, const uint8_t *data, size_t size,
                           const uint8_t *expected)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(data, size, digest);
    if (memcmp(digest, expected, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    cn_log(CN_LOG_ERROR, "model_store", "version-%u.%s is damaged", number, kind);
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

cn_err cn_model_load_delta(struct cn_store *store, const struct cn_layout *layout,
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
    cn_log(CN_LOG_ERROR, "model_store", "version-%u.residual%s is damaged", model->number,
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
        err = cn_model_load_delta(store, layout, model);
    if (!err && number > 0)
        err = load_state(store, layout, state_rows, version.state_digest, model);
    if (err)
        cn_model_deinit(model);
    return err;
}

cn_err cn_model_save(struct cn_store *store, const struct cn_layout *layout,
                     const struct cn_model *model)
{
    size_t row = layout->total * sizeof(float);
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
