#include "runtime/command/check_contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/check_ending.h"
#include "runtime/command/check_export.h"
#include "runtime/command/check_weights.h"
#include "runtime/engine/data/data_files.h"
#include "runtime/engine/data/source.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/onnx/onnx_normalize.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/port/crypto.h"
#include "runtime/profile/gpus.h"
#include "runtime/round/session/session.h"

// --- a store without files: a session with it starts from the beginning and keeps nothing ---

static cn_err open_none(struct cn_store *store, const char *name, struct cn_store_file **file,
                        uint64_t *size)
{
    (void)store, (void)name;
    *file = NULL;
    *size = 0;
    return CN_ENOTFOUND;
}

static cn_err load_none(struct cn_store *store, const char *name, size_t limit, uint8_t **data,
                        size_t *size)
{
    (void)store, (void)name, (void)limit;
    *data = NULL;
    *size = 0;
    return CN_ENOTFOUND;
}

static cn_err create_none(struct cn_store *store, const char *name, struct cn_store_file **file)
{
    (void)store, (void)name;
    *file = NULL;
    return CN_ENOTSUP;
}

static void abort_none(struct cn_store_file *file)
{
    (void)file;
}

static cn_err remove_none(struct cn_store *store, const char *name)
{
    (void)store, (void)name;
    return CN_OK;
}

static cn_err list_none(struct cn_store *store, cn_err (*visit)(void *context, const char *name),
                        void *context)
{
    (void)store, (void)visit, (void)context;
    return CN_OK;
}

// A store in which no file exists, so nothing is read, written or committed.
static const struct cn_store_ops no_files = {.open = open_none,
                                             .load = load_none,
                                             .create = create_none,
                                             .abort = abort_none,
                                             .remove = remove_none,
                                             .unlink = remove_none,
                                             .list = list_none};

// --- model and data together ---

// Warns of a job that scales inputs which its model scales.
static void check_scaling(const struct cn_onnx *onnx, const struct cn_job *job,
                          struct cn_diag *diag)
{
    bool scales = job->scale < 1 || job->scale > 1 || job->mean < 0 || job->mean > 0 ||
                  job->rules.normalize != CN_NORMALIZE_NONE;

    if (scales && cn_onnx_is_normalized(onnx))
        cn_diag_add(diag, "the model scales its input already (cairn-node normalize): leave "
                          "data.scale, data.mean and data.normalize out of the job");
}

static void add_trained(const struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_onnx *onnx = cn_session_onnx(session);
    const struct cn_job *job = cn_session_get_config(session)->job;

    cn_check_export(onnx, job->rules.batch_norm, diag);
    cn_check_names(onnx, cn_session_layout(session), diag);
    cn_check_ending(onnx, &job->loss, diag);
    check_scaling(onnx, job, diag);
}

void cn_check_print_trained(const struct cn_session *session)
{
    static struct cn_diag diag;

    cn_diag_init(&diag);
    add_trained(session, &diag);
    cn_command_print_about(cn_session_get_config(session)->settings->model, CN_OK, &diag);
}

static int explain(cn_err err, const char *what, const struct cn_diag *diag)
{
    if (err)
        cn_command_print_errors(diag);
    if (err && diag->count == 0)
        fprintf(stderr, "error: %s: %s\n", what, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Does all that "train" does before its first step, except reading the stored state.
static int open_session(const struct cn_ports *ports, const struct cn_settings *settings,
                        const struct cn_onnx_file *file)
{
    static struct cn_diag diag;
    struct cn_store store = {.ops = &no_files};
    struct cn_session_config config = {
        .settings = settings,
        .job = &settings->job,
        .compute = cn_command_compute(ports, settings, NULL),
        .store = &store,
        .model = file->data,
        .model_size = file->size,
        .file = file,
        .group = settings->name,
        .alone = true,
        .anew = true,
        .stop_fd = -1,
    };
    struct cn_session *session = NULL;
    cn_err err;

    if (!config.compute)
        return CN_EXIT_FAILED;
    cn_diag_init(&diag);
    err = cn_session_open(&config, &diag, &session);
    if (!err)
        cn_check_print_trained(session);
    cn_session_close(session);
    return explain(err, settings->model, &diag);
}

static int open_job(const struct cn_ports *ports, const struct cn_settings *settings, bool alone)
{
    static struct cn_diag diag;
    struct cn_onnx_file file = {.data = NULL};
    struct cn_onnx *onnx = NULL;
    struct cn_layout layout = {0};
    cn_err err;
    int code;

    cn_diag_init(&diag);
    err = cn_onnx_file_open(settings->model, &diag, &file);
    if (!err)
        err = cn_onnx_open(file.data, file.size, &diag, &onnx);
    if (!err)
        err = cn_onnx_layout(onnx, &diag, &layout);
    // A board that trains alone holds the whole model.
    if (!err && !alone && settings->job.pipeline.parts > 1)
        err = cn_trainer_check_cut(onnx, &settings->job, &diag);
    if (err)
        cn_command_print_about(settings->model, err, &diag);
    code = err ? CN_EXIT_FAILED : CN_EXIT_DONE;
    if (!err && alone)
        code = open_session(ports, settings, &file);
    cn_layout_deinit(&layout);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    return code;
}

// --- data without a model ---

static int open_file(const char *path, bool integers)
{
    static struct cn_diag diag;
    struct cn_data_files files = {0};
    struct cn_source source;
    cn_err err;

    if (!path[0])
        return CN_EXIT_DONE;
    cn_diag_init(&diag);
    if (cn_data_files_is_pattern(path)) { // the folder must exist; its files may come later
        err = cn_data_files_find(path, false, &files);
        cn_data_files_deinit(&files);
        return explain(err, path, &diag);
    }
    err = cn_source_open(path, integers, &diag, &source);
    if (!err)
        cn_source_deinit(&source);
    return explain(err, path, &diag);
}

static int open_set(const struct cn_data_paths *set)
{
    int code = set->file_count ? CN_EXIT_DONE : open_file(set->inputs, false);

    for (uint32_t i = 0; i < set->file_count; i++)
        code |= open_file(set->files[i].path, false);
    return code | open_file(set->labels, true);
}

// --- keys ---

static int open_key(const struct cn_ports *ports, const struct cn_settings *settings)
{
    static struct cn_diag diag;
    uint8_t key[CN_KEY_SIZE];
    cn_err err;

    cn_diag_init(&diag);
    err = ports->load_link_key(settings, &diag, key);
    cn_crypto_wipe(key, sizeof(key));
    if (!err)
        return CN_EXIT_DONE;
    cn_command_print_diag(&diag);
    if (diag.count == 0)
        fprintf(stderr, "error: %s: %s\n", settings->key, cn_err_text(err));
    return CN_EXIT_FAILED;
}

// With several GPUs each member has a key of its own.
static int open_keys(const struct cn_ports *ports, const struct cn_settings *settings)
{
    static struct cn_settings member; // large
    uint32_t numbers[CN_GROUP_MAX], count = cn_gpus_list(settings, numbers);
    int code = CN_EXIT_DONE;

    if (count < 2)
        return open_key(ports, settings);
    for (uint32_t place = 0; place < count; place++) {
        member = *settings;
        if (cn_gpus_narrow(&member, place)) {
            fprintf(stderr, "error: gpus: a name or path becomes too long\n");
            return CN_EXIT_FAILED;
        }
        code |= open_key(ports, &member);
    }
    return code;
}

int cn_check_contents(const struct cn_ports *ports, const struct cn_settings *settings)
{
    bool alone = settings->has_job && settings->state[0] && !settings->gateway.listen_count;
    int code = CN_EXIT_DONE;

    if (settings->has_job && settings->model[0])
        code |= open_job(ports, settings, alone);
    for (uint32_t i = 0; i < settings->data_count && !alone; i++)
        code |= open_set(&settings->data[i]);
    if (settings->name[0] && settings->key[0])
        code |= open_keys(ports, settings);
    return code;
}
