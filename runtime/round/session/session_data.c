#include "runtime/round/session/session_private.h"

#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/round/session/file_list.h"

#define LIST_FILE "data.list"

static cn_err save_list(const struct cn_session *session)
{
    const struct cn_file_list list = {
        .run = session->config.run,
        .lineage = session->config.lineage,
        .round = session->data.files_round,
        .shards = *cn_dataset_shards(session->data.set),
    };
    struct cn_buffer bytes;
    cn_err err;

    cn_buffer_init(&bytes, CN_FILE_LIST_MAX);
    err = cn_file_list_encode(&list, &bytes);
    if (!err)
        err = cn_store_replace(session->config.store, LIST_FILE, bytes.data, bytes.size);
    cn_buffer_deinit(&bytes);
    return err;
}

// Reads the stored list. Returns CN_ENOTFOUND when there is none or it is of another run.
static cn_err read_list(const struct cn_session *session, struct cn_file_list *list)
{
    struct cn_store *store = session->config.store;
    uint8_t *bytes = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, LIST_FILE, CN_FILE_LIST_MAX, &bytes, &size);

    *list = (struct cn_file_list){.round = 0};
    if (!err)
        err = cn_file_list_decode(bytes, size, list);
    free(bytes);
    if (!err && (list->run != session->config.run || list->lineage != session->config.lineage)) {
        cn_data_files_deinit(&list->shards);
        err = CN_ENOTFOUND;
    }
    return err;
}

// Loads the stored list. Returns false without a usable list: the round then has the data files
// that are there now.
static bool load_list(struct cn_session *session, struct cn_data_files *shards)
{
    struct cn_file_list list;
    cn_err err = read_list(session, &list);

    session->data.files_round = err ? 0 : list.round;
    *shards = list.shards;
    if (!err)
        return true;
    if (err != CN_ENOTFOUND)
        cn_log(CN_LOG_WARN, "data",
               "the list of the round's shards cannot be used: %s; a round that continues now "
               "cannot be repeated to the bit",
               cn_err_text(err));
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
    struct cn_data_files shards = {0};
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
    err = cn_dataset_open(&config, &shape, diag, &session->data.set);
    if (err == CN_EFORMAT && config.shards) { // none of the round's data files is left
        session->data.files_round = 0;
        config.shards = NULL;
        err = cn_dataset_open(&config, &shape, diag, &session->data.set);
    }
    cn_data_files_deinit(&shards);
    return err ? err : cn_reader_open(session->data.set, &shape, job->batch, &session->data.reader);
}

cn_err cn_session_take_files(struct cn_session *session, uint32_t round)
{
    bool changed;
    cn_err err;

    if (!cn_dataset_is_open_ended(session->data.set) || session->data.files_round == round)
        return CN_OK;
    cn_reader_stop(session->data.reader);
    err = cn_dataset_refresh(session->data.set, &changed);
    if (err)
        return err;
    if (changed)
        cn_log(CN_LOG_INFO, "data", "round %u: %" PRIu64 " samples to train on", round,
               cn_dataset_count(session->data.set, CN_SPLIT_TRAIN));
    session->data.files_round = round;
    err = save_list(session);
    if (err && err != CN_ENOMEM)
        cn_log(CN_LOG_WARN, "data", "the list of the round's shards is not saved: %s",
               cn_err_text(err));
    return err == CN_ENOMEM ? err : CN_OK;
}
