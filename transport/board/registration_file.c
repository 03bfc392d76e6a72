#include "transport/board/registration_file.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"

#define HEADER_SIZE 44
#define OWNER_AT 8
#define MANIFEST_SIZE_AT 40
#define KEYS_AT 42

static const uint8_t magic[8] = {'c', 'a', 'i', 'r', 'n', 'r', 'g', '1'};

static void add_count(struct cn_sha256 *sha, uint32_t count)
{
    uint8_t bytes[4];

    cn_put_u32(bytes, count);
    cn_sha256_add(sha, bytes, sizeof(bytes));
}

// Adds a text with its final zero, so that consecutive texts cannot be confused with others.
static void add_text(struct cn_sha256 *sha, const char *text)
{
    cn_sha256_add(sha, text, strlen(text) + 1);
}

cn_err cn_registration_origin(const struct cn_link_config *config, uint8_t origin[CN_DIGEST_SIZE])
{
    uint8_t key[CN_KEY_SIZE];
    struct cn_sha256 sha;
    cn_err err = cn_crypto_derive(config->key, "cairn/1 registration", key);

    if (err)
        return err;
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, key, sizeof(key));
    add_text(&sha, config->board);
    add_count(&sha, config->address_count);
    for (uint32_t i = 0; i < config->address_count; i++)
        add_text(&sha, config->addresses[i]);
    cn_sha256_finish(&sha, origin);
    cn_crypto_wipe(key, sizeof(key));
    return CN_OK;
}

void cn_registration_owner(const uint8_t origin[CN_DIGEST_SIZE],
                           const struct cn_registration *facts, uint8_t owner[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;

    cn_sha256_init(&sha);
    cn_sha256_add(&sha, origin, CN_DIGEST_SIZE);
    add_count(&sha, facts->member_count);
    for (uint32_t i = 0; i < facts->member_count; i++)
        add_text(&sha, facts->members[i]);
    cn_sha256_finish(&sha, owner);
}

cn_err cn_registration_encode(const uint8_t owner[CN_DIGEST_SIZE],
                              const struct cn_register_reply *reply, uint32_t keys, uint8_t *bytes,
                              size_t *size)
{
    size_t manifest_size, used;
    cn_err err = cn_message_put_manifest(reply, bytes + HEADER_SIZE, &manifest_size);

    if (err)
        return err;
    memcpy(bytes, magic, sizeof(magic));
    memcpy(bytes + OWNER_AT, owner, CN_DIGEST_SIZE);
    cn_put_u16(bytes + MANIFEST_SIZE_AT, (uint16_t)manifest_size);
    cn_put_u16(bytes + KEYS_AT, (uint16_t)keys);
    used = HEADER_SIZE + manifest_size;
    memcpy(bytes + used, reply->manifest.pair_keys, (size_t)keys * CN_KEY_SIZE);
    used += (size_t)keys * CN_KEY_SIZE;
    cn_crypto_digest(bytes, used, bytes + used);
    *size = used + CN_DIGEST_SIZE;
    return CN_OK;
}

cn_err cn_registration_decode(const uint8_t *bytes, size_t size,
                              const uint8_t owner[CN_DIGEST_SIZE], uint32_t keys,
                              struct cn_register_reply *reply)
{
    uint8_t digest[CN_DIGEST_SIZE];
    size_t manifest_size;
    cn_err err;

    if (size < HEADER_SIZE + CN_DIGEST_SIZE || size > CN_REGISTRATION_MAX ||
        memcmp(bytes, magic, sizeof(magic)) != 0)
        return CN_EFORMAT;
    cn_crypto_digest(bytes, size - CN_DIGEST_SIZE, digest);
    if (memcmp(digest, bytes + size - CN_DIGEST_SIZE, CN_DIGEST_SIZE) != 0)
        return CN_EDIGEST;
    if (memcmp(bytes + OWNER_AT, owner, CN_DIGEST_SIZE) != 0)
        return CN_ESTALE;
    manifest_size = cn_get_u16(bytes + MANIFEST_SIZE_AT);
    if (cn_get_u16(bytes + KEYS_AT) != keys || keys > CN_GROUP_MAX ||
        size != HEADER_SIZE + manifest_size + (size_t)keys * CN_KEY_SIZE + CN_DIGEST_SIZE)
        return CN_EFORMAT;
    err = cn_message_get_manifest(bytes + HEADER_SIZE, manifest_size, reply);
    if (!err)
        memcpy(reply->manifest.pair_keys, bytes + HEADER_SIZE + manifest_size,
               (size_t)keys * CN_KEY_SIZE);
    return err;
}

static void free_secret(uint8_t *bytes, size_t size)
{
    if (bytes)
        cn_crypto_wipe(bytes, size);
    free(bytes);
}

cn_err cn_registration_load(struct cn_store *store, const uint8_t owner[CN_DIGEST_SIZE],
                            uint32_t keys, struct cn_register_reply *reply)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, CN_REGISTRATION_FILE, CN_REGISTRATION_MAX, &bytes, &size);

    if (!err)
        err = cn_registration_decode(bytes, size, owner, keys, reply);
    free_secret(bytes, size);
    return err;
}

static bool is_stored(struct cn_store *store, const uint8_t *bytes, size_t size)
{
    uint8_t *stored = NULL;
    size_t stored_size = 0;
    bool same = store->ops->load(store, CN_REGISTRATION_FILE, CN_REGISTRATION_MAX, &stored,
                                 &stored_size) == CN_OK &&
                stored_size == size && memcmp(stored, bytes, size) == 0;

    free_secret(stored, stored_size);
    return same;
}

cn_err cn_registration_save(struct cn_store *store, const uint8_t owner[CN_DIGEST_SIZE],
                            const struct cn_register_reply *reply, uint32_t keys)
{
    uint8_t bytes[CN_REGISTRATION_MAX];
    size_t size = 0;
    cn_err err = cn_registration_encode(owner, reply, keys, bytes, &size);

    if (!err && !is_stored(store, bytes, size))
        err = cn_store_replace(store, CN_REGISTRATION_FILE, bytes, size);
    cn_crypto_wipe(bytes, sizeof(bytes));
    return err;
}
