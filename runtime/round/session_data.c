#include "runtime/round/session_data.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"

#define LIST_FILE "data.list"
#define LIST_MAX ((size_t)64 << 20)
#define HEADER_SIZE 28
#define ENTRY_SIZE 14 // without the name

static const uint8_t list_magic[8] = "cairnds1"; // the digit is the version

enum { APART = 1, REFUSED = 2 };

static void put_header(const struct cn_session *session, size_t count, uint8_t header[HEADER_SIZE])
{
    memcpy(header, list_magic, sizeof(list_magic));
    cn_put_u64(header + 8, session->config.run);
    cn_put_u32(header + 16, session->config.lineage);
    cn_put_u32(header + 20, session->shards_round);
    cn_put_u32(header + 24, (uint32_t)count);
}

static cn_err put_entry(const struct cn_shard *shard, struct cn_buffer *list)
{
    size_t length = strlen(shard->name);
    uint8_t entry[ENTRY_SIZE];
    cn_err err;

    entry[0] = (uint8_t)((shard->apart ? APART : 0) | (shard->refused ? REFUSED : 0));
    entry[1] = (uint8_t)length;
    cn_put_u64(entry + 2, shard->bytes);
    cn_put_u32(entry + 10, shard->checksum);
    err = cn_buffer_append(list, entry, sizeof(entry));
    return err ? err : cn_buffer_append(list, shard->name, length);
}

static cn_err save_list(const struct cn_session *session)
{
    const struct cn_shards *shards = cn_dataset_shards(session->dataset);
    uint8_t header[HEADER_SIZE], digest[CN_DIGEST_SIZE];
    struct cn_buffer list;
    cn_err err;

    cn_buffer_init(&list, LIST_MAX);
    put_header(session, shards->count, header);
    err = cn_buffer_append(&list, header, sizeof(header));
    for (size_t i = 0; !err && i < shards->count; i++)
        err = put_entry(&shards->items[i], &list);
    if (!err) {
        cn_crypto_digest(list.data, list.size, digest);
        err = cn_buffer_append(&list, digest, sizeof(digest));
    }
    if (!err)
        err = cn_store_replace(session->config.store, LIST_FILE, list.data, list.size);
    cn_buffer_deinit(&list);
    return err;
}

// bytes are whole: their digest fits.
static cn_err read_entries(const uint8_t *bytes, size_t size, size_t count,
                           struct cn_shards *shards)
{
    for (size_t i = 0; i < count; i++) {
        struct cn_shard shard = {0};
        size_t length;
        cn_err err;

        if (size < ENTRY_SIZE || size - ENTRY_SIZE < bytes[1] || bytes[1] >= sizeof(shard.name))
            return CN_EFORMAT;
        length = bytes[1];
        shard.apart = bytes[0] & APART;
        shard.refused = bytes[0] & REFUSED;
        shard.bytes = cn_get_u64(bytes + 2);
        shard.checksum = cn_get_u32(bytes + 10);
        memcpy(shard.name, bytes + ENTRY_SIZE, length);
        err = cn_shards_add(shards, &shard);
        if (err)
            return err;
        bytes += ENTRY_SIZE + length;
        size -= ENTRY_SIZE + length;
    }
    return size ? CN_EFORMAT : CN_OK;
}

// CN_ENOTFOUND when there is none, or one of another run.
static cn_err parse_list(struct cn_session *session, const uint8_t *bytes, size_t size,
                         struct cn_shards *shards)
{
    uint8_t digest[CN_DIGEST_SIZE];

    if (size < HEADER_SIZE + CN_DIGEST_SIZE || memcmp(bytes, list_magic, sizeof(list_magic)) != 0)
        return CN_EFORMAT;
    size -= CN_DIGEST_SIZE;
    cn_crypto_digest(bytes, size, digest);
    if (memcmp(digest, bytes + size, CN_DIGEST_SIZE) != 0)
        return CN_EFORMAT;
    if (cn_get_u64(bytes + 8) != session->config.run ||
        cn_get_u32(bytes + 16) != session->config.lineage)
        return CN_ENOTFOUND;
    session->shards_round = cn_get_u32(bytes + 20);
    return read_entries(bytes + HEADER_SIZE, size - HEADER_SIZE, cn_get_u32(bytes + 24), shards);
}

// Without a list that can be used the shards are those that are there.
static bool load_list(struct cn_session *session, struct cn_shards *shards)
{
    struct cn_store *store = session->config.store;
    uint8_t *bytes = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, LIST_FILE, LIST_MAX, &bytes, &size);

    if (!err)
        err = parse_list(session, bytes, size, shards);
    free(bytes);
    if (!err)
        return true;
    if (err != CN_ENOTFOUND)
        cn_log(CN_LOG_WARN, "data",
               "the list of the round's shards cannot be used: %s; a round that goes on now is not "
               "repeated to the bit",
               cn_err_text(err));
    session->shards_round = 0;
    cn_shards_deinit(shards);
    return false;
}

static void set_files(const struct cn_data_paths *paths, struct cn_dataset_files *files)
{
    files->inputs = paths->inputs;
    files->labels = paths->labels;
    files->other_count = paths->file_count;
    for (uint32_t i = 0; i < paths->file_count; i++)
        files->others[i] = (struct cn_dataset_file){paths->files[i].name, paths->files[i].path};
}

cn_err cn_session_open_data(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_settings *settings = session->config.settings;
    const struct cn_job *job = session->config.job;
    const struct cn_data_paths *paths = cn_profile_data(settings, job->data_set);
    struct cn_dataset_config config = {
        .rules = &job->rules,
        .scale = job->scale,
        .mean = job->mean,
        .held_out = job->held_out,
        .seed = job->seed,
        .sequential = session->config.sequential,
    };
    struct cn_sample_shape shape;
    struct cn_shards shards = {0};
    cn_err err;

    if (!paths) {
        cn_diag_add(diag, "data set '%s' of job '%s' is not in this profile; add it under 'data:'",
                    job->data_set, job->name);
        return CN_EINVAL;
    }
    set_files(paths, &config.files);
    if (paths->held_out[0])
        set_files(cn_profile_data(settings, paths->held_out), &config.apart);
    cn_trainer_sample_shape(session->trainer, &shape);
    if (load_list(session, &shards))
        config.shards = &shards;
    err = cn_dataset_open(&config, &shape, diag, &session->dataset);
    if (err == CN_EFORMAT && config.shards) { // nothing of the round is left
        session->shards_round = 0;
        config.shards = NULL;
        err = cn_dataset_open(&config, &shape, diag, &session->dataset);
    }
    cn_shards_deinit(&shards);
    return err ? err : cn_reader_open(session->dataset, &shape, job->batch, &session->reader);
}

cn_err cn_session_take_shards(struct cn_session *session, uint32_t round)
{
    bool changed;
    cn_err err;

    if (!cn_dataset_is_open_ended(session->dataset) || session->shards_round == round)
        return CN_OK;
    cn_reader_stop(session->reader);
    err = cn_dataset_refresh(session->dataset, &changed);
    if (err)
        return err;
    if (changed)
        cn_log(CN_LOG_INFO, "data", "round %u: %llu samples to train on", round,
               (unsigned long long)cn_dataset_count(session->dataset, CN_SPLIT_TRAIN));
    session->shards_round = round;
    err = save_list(session);
    if (err && err != CN_ENOMEM)
        cn_log(CN_LOG_WARN, "data", "the list of the round's shards is not saved: %s",
               cn_err_text(err));
    return err == CN_ENOMEM ? err : CN_OK;
}
