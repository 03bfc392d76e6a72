#include "aggregator/store/model_damage.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/update/version.h"

static void add_text(struct cn_model_damage *damage, const char *format, ...)
{
    size_t used = strlen(damage->text);
    va_list values;
    va_start(values, format);
    if (used && used + 2 < sizeof(damage->text)) {
        memcpy(damage->text + used, ", ", 3);
        used += 2;
    }
    vsnprintf(damage->text + used, sizeof(damage->text) - used, format, values);
    va_end(values);
}

// One file of a version as it is on the disk.
struct found {
    char name[CN_MODEL_NAME_SIZE];
    uint8_t *data; // NULL: missing, or of another size than wanted
    bool missing;
};

// Reads a file that has this size. The caller frees found->data. After an error damage has the
// name.
static cn_err look(struct cn_store *store, uint32_t number, const char *kind, size_t size,
                   struct found *found, struct cn_model_damage *damage)
{
    size_t read = 0;
    *found = (struct found){0};
    cn_model_file_name(number, kind, found->name);
    cn_err err = store->ops->load(store, found->name, size, &found->data, &read);
    found->missing = err == CN_ENOTFOUND;
    if (err == CN_ENOTFOUND || err == CN_ERANGE)
        return CN_OK;
    if (err) {
        snprintf(damage->text, sizeof(damage->text), "%s", found->name);
        return err;
    }
    if (read != size) {
        free(found->data);
        found->data = NULL;
    }
    return CN_OK;
}

static void add_file(struct cn_model_damage *damage, const struct found *found)
{
    add_text(damage, "%s is %s", found->name, found->missing ? "missing" : "damaged");
}

static cn_err check_file(struct cn_store *store, uint32_t number, const char *kind, size_t size,
                         const uint8_t *expected, struct cn_model_damage *damage)
{
    struct found found;
    uint8_t digest[CN_DIGEST_SIZE] = {0};
    cn_err err = look(store, number, kind, size, &found, damage);
    if (err)
        return err;
    if (found.data)
        cn_crypto_digest(found.data, size, digest);
    if (!found.data || memcmp(digest, expected, CN_DIGEST_SIZE) != 0)
        add_file(damage, &found);
    free(found.data);
    return CN_OK;
}

static void check_state(const uint8_t *recorded, const struct found *residual, size_t row,
                        const struct found *rows, size_t count, struct cn_model_damage *damage)
{
    static const uint8_t none[CN_DIGEST_SIZE];
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_sha256 sha;
    if (!residual->data)
        add_file(damage, residual);
    if (count && !rows->data)
        add_file(damage, rows);
    if (!residual->data || (count && !rows->data) || memcmp(recorded, none, CN_DIGEST_SIZE) == 0)
        return;
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, residual->data, row);
    cn_sha256_add(&sha, rows->data, count * row);
    cn_sha256_finish(&sha, digest);
    if (memcmp(digest, recorded, CN_DIGEST_SIZE) == 0)
        return;
    if (count)
        add_text(damage, "%s or %s is damaged", residual->name, rows->name);
    else
        add_file(damage, residual);
}

cn_err cn_model_damage_find_full(struct cn_store *store, const struct cn_layout *layout,
                                 const struct cn_ledger_version *recorded,
                                 struct cn_model_damage *damage)
{
    *damage = (struct cn_model_damage){0};
    return check_file(store, recorded->number, "full",
                      CN_VERSION_HEADER_SIZE + layout->total * sizeof(float), recorded->digest,
                      damage);
}

cn_err cn_model_damage_find(struct cn_store *store, const struct cn_layout *layout,
                            size_t state_rows, const struct cn_ledger_version *recorded,
                            struct cn_model_damage *damage)
{
    size_t row = layout->total * sizeof(float);
    struct found residual = {0}, rows = {0};
    cn_err err = cn_model_damage_find_full(store, layout, recorded, damage);
    if (err || recorded->number == 0)
        return err;
    if (recorded->delta_size)
        err = check_file(store, recorded->number, "delta", (size_t)recorded->delta_size,
                         recorded->delta_digest, damage);
    if (!err)
        err = look(store, recorded->number, "residual", row, &residual, damage);
    if (!err && state_rows)
        err = look(store, recorded->number, "state", state_rows * row, &rows, damage);
    if (!err)
        check_state(recorded->state_digest, &residual, row, &rows, state_rows, damage);
    free(residual.data);
    free(rows.data);
    return err;
}

// Compares one file with its bytes, and writes it if it differs.
static cn_err mend_file(struct cn_store *store, uint32_t number, const char *kind, const void *data,
                        size_t size, bool write, struct cn_model_damage *damage)
{
    struct found found;
    cn_err err = look(store, number, kind, size, &found, damage);
    if (err)
        return err;
    bool same = found.data && memcmp(found.data, data, size) == 0;
    free(found.data);
    if (same)
        return CN_OK;
    if (write)
        err = cn_store_replace(store, found.name, data, size);
    if (err)
        snprintf(damage->text, sizeof(damage->text), "%s", found.name);
    else
        add_file(damage, &found);
    return err;
}

cn_err cn_model_damage_mend(struct cn_store *store, const struct cn_layout *layout,
                            const struct cn_model *model, bool write,
                            struct cn_model_damage *damage)
{
    size_t row = layout->total * sizeof(float);
    const struct {
        const char *kind;
        const void *data;
        size_t size;
    } files[] = {
        {"full", model->bytes, model->size},
        {"delta", model->delta, model->delta_size},
        {"residual", model->residual, row},
        {"state", model->state, model->state_rows * row},
    };
    cn_err err = CN_OK;
    *damage = (struct cn_model_damage){0};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !err; i++)
        if (files[i].data && files[i].size)
            err = mend_file(store, model->number, files[i].kind, files[i].data, files[i].size,
                            write, damage);
    return err;
}
