// session_version.c - versions of the model in a session: checking one that arrived, measuring it
// and making it the base.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/port/crypto.h"
#include "runtime/round/session/session_private.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

#define MODEL_FILE "model.current.onnx"

static cn_err check_full(const struct cn_session *session, const struct cn_session_version *version,
                         struct cn_version_header *header)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err;

    err = cn_version_get_header(version->bytes, version->size, header);
    if (err)
        return err;
    if (header->count != session->layout->total ||
        memcmp(header->graph, session->config.graph, CN_DIGEST_SIZE) != 0)
        return CN_EFORMAT;
    cn_crypto_digest(version->bytes, version->size, digest);
    return memcmp(digest, version->digest, CN_DIGEST_SIZE) ? CN_EDIGEST : CN_OK;
}

// Decodes a frame into values, as a delta from the held base or as a snapshot. Sets digest to the
// resulting version's.
static cn_err decode_delta(const struct cn_session *session,
                           const struct cn_session_version *version, float *values,
                           struct cn_version_header *header, uint8_t digest[CN_DIGEST_SIZE])
{
    const struct cn_checkpoint *held = &session->held;
    struct cn_update_header frame;
    cn_err err;

    err = cn_update_check(version->bytes, version->size, session->layout, NULL, &frame);
    if (err)
        return err;
    if (!frame.snapshot &&
        (!held->base || memcmp(frame.base, held->base_digest, CN_DIGEST_SIZE) != 0))
        return CN_ESTALE;
    if (!frame.snapshot)
        memcpy(values, held->base, session->layout->total * sizeof(float));
    err = cn_update_apply(version->bytes, version->size, session->layout, values);
    if (err)
        return err;
    header->count = session->layout->total;
    memcpy(header->graph, session->config.graph, CN_DIGEST_SIZE);
    memcpy(header->parent, frame.base, CN_DIGEST_SIZE);
    cn_version_digest(header, values, digest);
    return CN_OK;
}

// Sets values to the tensors of the version.
static cn_err decode_version(const struct cn_session *session,
                             const struct cn_session_version *version, float *values,
                             struct cn_version_header *header)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err;

    if (!version->delta) {
        err = check_full(session, version, header);
        if (!err)
            memcpy(values, version->bytes + CN_VERSION_HEADER_SIZE,
                   session->layout->total * sizeof(float));
        return err;
    }
    err = decode_delta(session, version, values, header, digest);
    if (err)
        return err;
    return memcmp(digest, version->digest, CN_DIGEST_SIZE) ? CN_EDIGEST : CN_OK;
}

cn_err cn_session_resolve_version(const struct cn_session *session,
                                  struct cn_session_version *version)
{
    struct cn_version_header header;
    float *values = calloc(session->layout->total + 1, sizeof(float));
    cn_err err;

    if (!values)
        return CN_ENOMEM;
    err = decode_delta(session, version, values, &header, version->digest);
    free(values);
    return err;
}

bool cn_session_may_take(struct cn_session *session, uint32_t number, bool delta, uint64_t size)
{
    const struct cn_layout *layout = session->layout;
    uint64_t full = CN_VERSION_HEADER_SIZE + 4 * (uint64_t)layout->total;
    uint64_t most = delta ? cn_update_size_max(layout) : full;

    if (delta ? size <= most : size == full)
        return true;
    if (size == session->arriving.refused_size)
        return false;
    session->arriving.refused_size = size;
    cn_log(CN_LOG_ERROR, "session",
           "version %u is said to have %llu bytes, expected %s%llu for this model: not taken",
           number, (unsigned long long)size, delta ? "at most " : "", (unsigned long long)most);
    return false;
}

cn_err cn_session_check_version(const struct cn_session *session,
                                const struct cn_session_version *version)
{
    struct cn_version_header header;
    float *values = calloc(session->layout->total + 1, sizeof(float));
    cn_err err;

    if (!values)
        return CN_ENOMEM;
    err = decode_version(session, version, values, &header);
    free(values);
    return err;
}

// Sums over the held-out samples; those of each class follow.
enum { LOSS, CORRECT, ROWS, TOP5, ABSOLUTE, VALUES, SUMS };

static cn_err evaluate(struct cn_session *session, float *sums)
{
    struct cn_metrics metrics = {0};
    uint64_t count = cn_dataset_count(session->data.set, CN_SPLIT_HELD_OUT);
    uint64_t batch = session->config.job->batch;
    uint32_t own, boards;
    cn_err err;

    cn_session_measured_share(session, &own, &boards);
    for (uint64_t first = own * batch; boards && first < count; first += boards * batch) {
        cn_dataset_range(session->data.set, CN_SPLIT_HELD_OUT, first, (uint32_t)batch,
                         &session->data.batch);
        err = cn_trainer_evaluate(session->trainer, &session->data.batch, &metrics);
        if (err && err != CN_EDIVERGED)
            return err;
    }
    sums[LOSS] = (float)cn_metrics_row_loss(&metrics);
    sums[CORRECT] = (float)metrics.correct;
    sums[ROWS] = (float)metrics.rows;
    sums[TOP5] = (float)metrics.top5;
    sums[ABSOLUTE] = (float)metrics.absolute;
    sums[VALUES] = (float)metrics.values;
    cn_trainer_take_counts(session->trainer, sums + SUMS);
    return CN_OK;
}

// Computes the measures from the sums over the group, as far as the job's loss defines them.
static void score(struct cn_session *session, const float *sums, size_t classes)
{
    struct cn_sample_shape shape;
    enum cn_loss loss = session->config.job->loss;
    double rows = sums[ROWS] > 0 ? (double)sums[ROWS] : NAN;
    struct cn_scores *scores = &session->measured.scores;

    cn_trainer_sample_shape(session->trainer, &shape);
    *scores = (struct cn_scores){
        .rows = (uint64_t)sums[ROWS],
        .loss = (double)sums[LOSS] / rows,
        .accuracy = NAN,
        .top5 = NAN,
        .f1 = NAN,
        .mae = NAN,
        .perplexity = NAN,
    };
    if (loss == CN_LOSS_CROSS_ENTROPY || loss == CN_LOSS_BINARY_ENTROPY)
        scores->accuracy = (double)sums[CORRECT] / rows;
    else if (loss != CN_LOSS_OUTPUT && sums[VALUES] > 0)
        scores->mae = (double)sums[ABSOLUTE] / (double)sums[VALUES];
    if (classes && sums[ROWS] > 0)
        scores->f1 = cn_trainer_f1(sums + SUMS, classes);
    if (classes > 5)
        scores->top5 = (double)sums[TOP5] / rows;
    if (classes && shape.rows > 1)
        scores->perplexity = exp(scores->loss);
}

// Measures the trainer's weights on the held-out samples of all members.
static cn_err measure(struct cn_session *session, struct cn_collective *collective, float kept[3])
{
    size_t classes = cn_trainer_classes(session->trainer), count = SUMS + 3 * classes;
    float *sums = calloc(count, sizeof(float));
    cn_err err = sums ? evaluate(session, sums) : CN_ENOMEM;

    if (!err)
        err = cn_all_reduce(collective, CN_REDUCE_SUM, sums, count);
    if (!err) {
        score(session, sums, classes);
        memcpy(kept, sums, 3 * sizeof(float));
    }
    free(sums);
    return err;
}

static cn_err write_piece(void *context, const void *piece, size_t size)
{
    return cn_store_writer_put(context, piece, size);
}

// Replaces the model file at once, because an application on the board may load it at any time.
static cn_err publish_model(struct cn_session *session)
{
    struct cn_store_writer writer;
    cn_err err = cn_store_writer_begin(session->config.store, MODEL_FILE, &writer);

    if (err)
        return err;
    err = cn_export_onnx_pieces(session->onnx, session->layout, session->held.base,
                                CN_EXPORT_INFERENCE, write_piece, &writer);
    return cn_store_writer_end(&writer, err);
}

// A version is measured with the statistics that this group would use.
static cn_err measure_version(struct cn_session *session, struct cn_collective *collective,
                              const float *values, float kept[3])
{
    size_t size = session->layout->total * sizeof(float);
    bool differs = session->config.job->statistics == CN_STATISTICS_LOCAL;
    float *local = differs ? malloc(size + 1) : NULL;
    cn_err err;

    if (differs && !local)
        return CN_ENOMEM;
    if (differs) {
        memcpy(local, values, size);
        cn_session_localize(session, local);
    }
    err = cn_trainer_lend_weights(session->trainer, differs ? local : values);
    if (!err)
        err = measure(session, collective, kept);
    (void)cn_trainer_lend_weights(session->trainer, NULL);
    free(local);
    return err;
}

static void note_version(struct cn_session *session, uint32_t number,
                         const uint8_t digest[CN_DIGEST_SIZE], const uint8_t parent[CN_DIGEST_SIZE],
                         const float sums[3])
{
    struct cn_checkpoint *held = &session->held;

    session->measured.scores.version = number;
    held->held_out_loss = isfinite(sums[LOSS]) ? (double)sums[LOSS] : 0;
    held->held_out_correct = (uint64_t)sums[CORRECT];
    held->held_out_count = (uint64_t)sums[ROWS];
    held->phase = CN_PHASE_BASE;
    held->version = number;
    memcpy(held->base_digest, digest, CN_DIGEST_SIZE);
    memcpy(held->base_parent, parent, CN_DIGEST_SIZE);
}

cn_err cn_session_install(struct cn_session *session, struct cn_collective *collective,
                          const struct cn_session_version *version)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_version_header header;
    float *values = calloc(session->layout->total + 1, sizeof(float));
    float sums[3] = {0};
    cn_err err;

    if (!values)
        return CN_ENOMEM;
    err = decode_version(session, version, values, &header);
    if (!err)
        err = measure_version(session, collective, values, sums);
    if (err) {
        free(values);
        return err;
    }
    note_version(session, version->number, version->digest, header.parent, sums);
    cn_session_follow_rollback(session, version);
    free(held->base);
    held->base = values;
    err = cn_session_load_trainer(session);
    if (err)
        return err;
    err = publish_model(session);
    if (err)
        cn_log(CN_LOG_WARN, "session", "%s was not replaced: %s", MODEL_FILE, cn_err_text(err));
    return cn_session_save(session, 0);
}

// Computes the digest of the version made from the trainer's weights. Its parent is the previous
// base.
static cn_err digest_weights(struct cn_session *session, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_version_header header = {.count = session->layout->total};
    float *weights;
    cn_err err = cn_trainer_share_weights(session->trainer, &weights);

    if (err)
        return err;
    memcpy(header.graph, session->config.graph, CN_DIGEST_SIZE);
    memcpy(header.parent, session->held.base_digest, CN_DIGEST_SIZE);
    cn_version_digest(&header, weights, digest);
    return cn_trainer_return_weights(session->trainer);
}

// Training does not need the published model, so only errors of the device count.
static cn_err publish_weights(struct cn_session *session)
{
    float *weights;
    cn_err err = cn_trainer_share_weights(session->trainer, &weights), published;

    if (err)
        return err;
    session->held.base = weights;
    published = publish_model(session);
    session->held.base = NULL;
    if (published)
        cn_log(CN_LOG_WARN, "session", "%s was not replaced: %s", MODEL_FILE,
               cn_err_text(published));
    return cn_trainer_return_weights(session->trainer);
}

cn_err cn_session_adopt(struct cn_session *session, struct cn_collective *collective,
                        uint32_t number)
{
    uint8_t digest[CN_DIGEST_SIZE], parent[CN_DIGEST_SIZE];
    float sums[3] = {0};
    cn_err err = digest_weights(session, digest);

    if (!err)
        err = measure(session, collective, sums);
    if (err)
        return err;
    memcpy(parent, session->held.base_digest, CN_DIGEST_SIZE);
    note_version(session, number, digest, parent, sums);
    session->held.residual_version = number; // nothing is sent, so nothing waits to be sent
    err = cn_session_load_trainer(session);
    if (err)
        return err;
    err = publish_weights(session);
    return err ? err : cn_session_save(session, 0);
}
