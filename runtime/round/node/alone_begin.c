#include "runtime/round/node/alone_begin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx_tensor.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/port/crypto.h"
#include "runtime/profile/rules_text.h"
#include "runtime/round/node/alone_best.h"
#include "runtime/round/node/alone_values.h"

#define WEIGHTS_LINE "the model's weights"
#define BEGUN_LINE "begun with the weights"
#define SAMPLES_LINE "samples"

static cn_err graph_digest(const struct cn_onnx *onnx, const struct cn_layout *layout,
                           uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_buffer blob;
    cn_err err;

    cn_buffer_init(&blob, CN_ONNX_FILE_MAX);
    err = cn_export_graph(onnx, layout, &blob);
    if (!err)
        cn_crypto_digest(blob.data, blob.size, digest);
    cn_buffer_deinit(&blob);
    return err;
}

// Adds the rules to the run's digest. A cosine schedule depends on the length of the run. "last"
// marks runs that hold out the last windows, because earlier releases held out random ones. apart
// is true if the held-out samples have files of their own.
static void add_rules(struct cn_sha256 *sha, const struct cn_job *job, bool apart)
{
    char text[CN_RULES_TEXT_SIZE];

    cn_rules_text(&job->rules, text);
    cn_sha256_add(sha, text, strlen(text));
    if (job->rules.schedule == CN_SCHEDULE_COSINE)
        cn_sha256_add(sha, &job->rounds, sizeof(job->rounds));
    if (job->rules.window && job->held_out > 0 && !apart)
        cn_sha256_add(sha, "last", 4);
}

// Computes the digest of the first weights from their bytes in the file.
static cn_err weights_digest(const struct cn_onnx *onnx, const struct cn_layout *layout,
                             struct cn_diag *diag, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;

    cn_sha256_init(&sha);
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_onnx_tensor *tensor = cn_onnx_tensor_of(onnx, &layout->tensors[i]);

        if (!tensor) {
            cn_diag_add(diag, "the file of the weights has no tensor '%s' of %zu values",
                        layout->tensors[i].name, layout->tensors[i].count);
            return CN_EINVAL;
        }
        cn_sha256_add(&sha, tensor->data, tensor->size);
    }
    cn_sha256_finish(&sha, digest);
    return CN_OK;
}

// Returns a number for the run, which changes with each value that changes the result. Paths and
// thread counts do not.
static uint64_t run_of(const struct cn_session_config *session)
{
    const struct cn_data_paths *paths = cn_profile_data(session->settings, session->job->data_set);
    const struct cn_job *job = session->job;
    struct cn_sha256 sha;
    uint8_t digest[CN_DIGEST_SIZE];
    char text[512];

    snprintf(text, sizeof(text), "%s %" PRIu64 " %d %s %a %a %a %u %u %u %a %a %a %d", job->name,
             job->seed, (int)job->loss, job->data_set, job->scale, job->mean, job->held_out,
             job->batch, cn_job_accumulate(job), job->local_steps, job->learning_rate,
             job->momentum, job->weight_decay, job->keep_optimizer);
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, session->graph, CN_DIGEST_SIZE);
    cn_sha256_add(&sha, text, strlen(text));
    add_rules(&sha, job, paths && paths->held_out[0]);
    cn_sha256_finish(&sha, digest);
    return cn_get_u64(digest);
}

// Sets the number of the run. Other first weights give another number. Earlier releases left the
// first weights out of the number; older_run lets their states continue.
static void name_run(struct cn_session_config *session, const uint8_t weights[CN_DIGEST_SIZE])
{
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_sha256 sha;

    session->older_run = run_of(session) + session->sequential;
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, &session->older_run, sizeof(session->older_run));
    cn_sha256_add(&sha, weights, CN_DIGEST_SIZE);
    cn_sha256_finish(&sha, digest);
    session->run = cn_get_u64(digest);
}

// Reads a model. Its lines in diag begin with the name of its file.
static cn_err open_onnx(const struct cn_onnx_file *file, struct cn_diag *diag,
                        struct cn_onnx **onnx)
{
    struct cn_diag about;
    cn_err err;

    cn_diag_init(&about);
    err = cn_onnx_open(file->data, file->size, &about, onnx);
    cn_diag_add_about(diag, file->path, &about);
    return err;
}

// Computes the digests of the graph, of the model's weights (own), and of the first weights
// (first). The first weights are in the file `from`, which may be the model itself.
static cn_err read_model(const struct cn_onnx_file *model, const struct cn_onnx_file *from,
                         struct cn_diag *diag, uint8_t graph[CN_DIGEST_SIZE],
                         uint8_t own[CN_DIGEST_SIZE], uint8_t first[CN_DIGEST_SIZE])
{
    struct cn_onnx *onnx = NULL, *begin = NULL;
    struct cn_layout layout = {0};
    cn_err err = open_onnx(model, diag, &onnx);

    if (!err)
        err = open_onnx(from, diag, &begin);
    if (!err)
        err = cn_onnx_layout(onnx, diag, &layout);
    if (!err)
        err = graph_digest(onnx, &layout, graph);
    if (!err)
        err = weights_digest(onnx, &layout, diag, own);
    if (!err)
        err = weights_digest(begin, &layout, diag, first);
    cn_layout_deinit(&layout);
    cn_onnx_close(begin);
    cn_onnx_close(onnx);
    return err;
}

// Lets a run that was begun with --from continue without it: takes the stored digest of its first
// weights.
static void take_begun(const struct cn_alone_config *config, const struct cn_alone_values *stored,
                       const struct cn_alone_values *values, uint8_t weights[CN_DIGEST_SIZE])
{
    char begun[2 * CN_DIGEST_SIZE + 1], before[64], now[64];

    if (!config->from && cn_alone_values_get(stored, BEGUN_LINE, begun, sizeof(begun)) &&
        cn_alone_values_get(stored, WEIGHTS_LINE, before, sizeof(before)) &&
        cn_alone_values_get(values, WEIGHTS_LINE, now, sizeof(now)) && strcmp(before, now) == 0 &&
        cn_hex_parse(begun, weights, CN_DIGEST_SIZE))
        cn_log(CN_LOG_WARN, "train", "the stored note on --from cannot be used");
}

static void say_ways(const struct cn_alone_config *config, const struct cn_alone_values *stored,
                     const struct cn_alone_values *values, struct cn_diag *diag)
{
    const char *state = config->settings->state;

    cn_diag_init(diag);
    cn_diag_add(diag, "%s has a model that was trained with other values; it stays as it is",
                state);
    if (!cn_alone_values_compare(stored, values, diag))
        cn_diag_add(
            diag,
            "it is not known which values differ: another release of this program stored them");
    cn_diag_add(
        diag,
        "restore the values, or use --from %s/model.current.onnx to continue from its weights, or "
        "--anew to start over; both replace what is there (state: may name another directory)",
        state);
}

// Says that the state of an earlier training is lost, but not its results.
static void say_lost(const struct cn_alone_config *config, struct cn_diag *diag)
{
    const char *state = config->settings->state;

    cn_diag_add(diag,
                "%s has a model that was trained, but no checkpoint to go on from; it stays as it "
                "is",
                state);
    cn_diag_add(
        diag,
        "use --from %s/model.current.onnx to begin with its weights, or --anew to start over; both "
        "replace what is there (state: may name another directory)",
        state);
}

// Stores the values of the run. Other samples change which of them are held out. This is logged,
// not refused.
static cn_err note_values(const struct cn_session *session, const struct cn_alone_values *stored,
                          struct cn_alone_values *values)
{
    const struct cn_dataset *dataset = cn_session_dataset(session);
    struct cn_sample_shape shape;
    uint64_t words = 1;
    char before[128], now[128];
    cn_err err = CN_OK;

    cn_trainer_sample_shape(cn_session_trainer(session), &shape);
    for (uint32_t i = 0; i < shape.inputs[0].rank; i++)
        words *= shape.inputs[0].dims[i];
    if (!cn_dataset_is_open_ended(dataset)) {
        snprintf(now, sizeof(now),
                 "%" PRIu64 " to train on, %" PRIu64 " held out, %" PRIu64 " values each",
                 cn_dataset_count(dataset, CN_SPLIT_TRAIN),
                 cn_dataset_count(dataset, CN_SPLIT_HELD_OUT), words);
        if (cn_session_held(session)->version > 0 &&
            cn_alone_values_get(stored, SAMPLES_LINE, before, sizeof(before)) &&
            strcmp(before, now) != 0) {
            cn_log(CN_LOG_WARN, "train",
                   "the samples have changed: now %s, before %s; some that measure now may have "
                   "been trained on, and the best round is sought anew",
                   now, before);
            err = cn_alone_best_forget(session);
        }
        if (!err)
            err = cn_alone_values_set(values, SAMPLES_LINE, now);
        if (err)
            return err;
    }
    return cn_alone_values_save(cn_session_get_config(session)->store, stored, values);
}

// Gives a new run the weights of the file of --from.
static cn_err take_weights(const struct cn_onnx_file *from, struct cn_session *session,
                           struct cn_diag *diag)
{
    const struct cn_layout *layout = cn_session_layout(session);
    struct cn_onnx *onnx = NULL;
    float *weights = NULL;
    cn_err err;

    if (cn_session_held(session)->phase != CN_PHASE_EMPTY)
        return CN_OK;
    err = cn_onnx_open(from->data, from->size, diag, &onnx);
    if (!err && !(weights = malloc(layout->total * sizeof(float))))
        err = CN_ENOMEM;
    if (!err)
        err = cn_onnx_weights(onnx, layout, weights);
    if (!err)
        err = cn_trainer_set_weights(cn_session_trainer(session), weights);
    free(weights);
    cn_onnx_close(onnx);
    return err;
}

// Describes the values of the run. own: digest of the model's weights. first: digest of the weights
// that the run begins or began with.
static cn_err describe(const struct cn_alone_config *config,
                       const struct cn_session_config *session,
                       const struct cn_alone_values *stored, const uint8_t own[CN_DIGEST_SIZE],
                       uint8_t first[CN_DIGEST_SIZE], struct cn_alone_values *values)
{
    char begun[2 * CN_DIGEST_SIZE + 1];
    cn_err err = cn_alone_values_describe(session->settings, session->sequential, session->graph,
                                          own, values);

    if (err)
        return err;
    take_begun(config, stored, values, first);
    if (memcmp(own, first, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    cn_hex(begun, first, CN_DIGEST_SIZE);
    return cn_alone_values_set(values, BEGUN_LINE, begun);
}

static cn_err open_run(const struct cn_alone_config *config, struct cn_session_config *session,
                       struct cn_diag *diag, struct cn_session **opened)
{
    struct cn_alone_values stored, values = {NULL};
    uint8_t own[CN_DIGEST_SIZE], first[CN_DIGEST_SIZE];
    cn_err err = read_model(config->model, config->from ? config->from : config->model, diag,
                            session->graph, own, first);

    cn_alone_values_load(config->store, &stored);
    if (!err)
        err = describe(config, session, &stored, own, first, &values);
    if (!err) {
        name_run(session, first);
        err = cn_session_open(session, diag, opened);
        if (err == CN_ECONFLICT)
            say_ways(config, &stored, &values, diag);
        else if (err == CN_EEXIST)
            say_lost(config, diag);
    }
    if (!err && config->from)
        err = take_weights(config->from, *opened, diag);
    if (!err)
        err = note_values(*opened, &stored, &values);
    cn_alone_values_deinit(&stored);
    cn_alone_values_deinit(&values);
    return err;
}

cn_err cn_alone_begin(const struct cn_alone_config *config, struct cn_diag *diag,
                      struct cn_session **session)
{
    struct cn_session_config wanted = {
        .settings = config->settings,
        .job = &config->settings->job,
        .compute = config->compute,
        .store = config->store,
        .model = config->model->data,
        .model_size = config->model->size,
        .file = config->model,
        .lineage = 1,
        .alone = true,
        .anew = config->anew,
        .replaces = config->from != NULL,
        .keeps = config->trained && !config->anew && !config->from,
        .sequential = config->sequential,
        .group = config->settings->name,
        .timeline = config->timeline,
        .stop_fd = -1,
    };
    uint64_t planned;
    cn_err err = open_run(config, &wanted, diag, session);

    if (err)
        return err;
    planned = cn_session_memory(*session) + cn_onnx_file_memory(config->model);
    cn_log(CN_LOG_INFO, "train", "memory: %" PRIu64 " bytes planned", planned);
    return CN_OK;
}
