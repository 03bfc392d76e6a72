// session_version.c - versions of the model in a session: checking one that arrived, measuring it
// and making it the base.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_private.h"
#include "runtime/round/session/session_trace.h"
#include "runtime/round/session/sum_bounds.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update_stream.h"
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

// A version while it is decoded from a frame. Its values go to a row in memory, or nowhere.
struct decoding {
    const float *base;                 // NULL: in stored
    struct cn_checkpoint_file *stored; // state that has the base; NULL: in memory
    float *values;                     // NULL: only the digest is wanted
};

static cn_err read_for(void *context, size_t offset, float *values, size_t count)
{
    const struct decoding *decoding = context;

    if (decoding->stored)
        return cn_checkpoint_read_values(decoding->stored, CN_PART_BASE, offset, count, values);
    memcpy(values, decoding->base + offset, count * sizeof(*values));
    return CN_OK;
}

static cn_err take_for(void *context, size_t offset, const float *values, size_t count)
{
    const struct decoding *decoding = context;

    if (decoding->values)
        memcpy(decoding->values + offset, values, count * sizeof(*values));
    return CN_OK;
}

// Decodes a frame, as a delta from the held base or as a snapshot, into values unless that is NULL.
// Sets digest to the resulting version's.
static cn_err decode_delta(const struct cn_session *session,
                           const struct cn_session_version *version, float *values,
                           struct cn_version_header *header, uint8_t digest[CN_DIGEST_SIZE])
{
    const struct cn_checkpoint *held = &session->held;
    struct decoding decoding = {.base = held->base, .values = values};
    const struct cn_update_stream stream = {cn_session_has_base(session) ? read_for : NULL,
                                            take_for, &decoding};
    struct cn_update_header frame;
    cn_err err;

    err = cn_update_check(version->bytes, version->size, session->layout, NULL, &frame);
    if (err)
        return err;
    if (!frame.snapshot && memcmp(frame.base, held->base_digest, CN_DIGEST_SIZE) != 0)
        return CN_ESTALE; // a snapshot may be of any version of the run
    header->count = session->layout->total;
    memcpy(header->graph, session->config.graph, CN_DIGEST_SIZE);
    memcpy(header->parent, frame.base, CN_DIGEST_SIZE);
    if (!held->base && cn_session_has_base(session))
        err = cn_session_open_rows(session, &decoding.stored);
    if (!err)
        err = cn_update_stream_digest(version->bytes, version->size, session->layout, header,
                                      &stream, digest);
    cn_checkpoint_close(decoding.stored);
    return err;
}

// Sets values, unless that is NULL, to the tensors of the version.
static cn_err decode_version(const struct cn_session *session,
                             const struct cn_session_version *version, float *values,
                             struct cn_version_header *header)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err;

    if (!version->delta) {
        err = check_full(session, version, header);
        if (!err && values)
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

    return decode_delta(session, version, NULL, &header, version->digest);
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
           "version %u is said to have %" PRIu64 " bytes, expected %s%" PRIu64
           " for this model: not taken",
           number, size, delta ? "at most " : "", most);
    return false;
}

cn_err cn_session_check_version(const struct cn_session *session,
                                const struct cn_session_version *version)
{
    struct cn_version_header header;

    return decode_version(session, version, NULL, &header);
}

// Indices of the sums over the held-out samples. The sums of each class follow.
enum { LOSS, CORRECT, ROWS, TOP5, ABSOLUTE, VALUES, SUMS };

static cn_err evaluate(struct cn_session *session, struct cn_collective *collective, float *sums)
{
    struct cn_metrics metrics = {0};
    uint64_t batch = session->config.job->batch, count;
    bool reads = !cn_session_takes_turns(session) || session->plan.chain.part == 0;
    uint32_t own, boards;
    cn_err err = cn_session_count_held_out(session, collective, &count);

    if (err)
        return err;
    cn_session_measured_share(session, &own, &boards);
    for (uint64_t first = own * batch; boards && first < count; first += boards * batch) {
        session->data.batch.count = (uint32_t)(count - first < batch ? count - first : batch);
        if (reads)
            cn_dataset_range(session->data.set, CN_SPLIT_HELD_OUT, first, (uint32_t)batch,
                             &session->data.batch);
        err = cn_session_is_cut(session)
                  ? cn_session_evaluate_chain(session, collective, &session->data.batch, &metrics)
                  : cn_trainer_evaluate(session->trainer, &session->data.batch, &metrics);
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
        .rows = (uint64_t)cn_sum_within((double)sums[ROWS], 0, (double)CN_SUM_COUNT_MOST, 0),
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
        scores->mae =
            cn_sum_within((double)sums[ABSOLUTE] / (double)sums[VALUES], 0, INFINITY, NAN);
    if (classes && sums[ROWS] > 0)
        scores->f1 = cn_sum_within(cn_trainer_f1(sums + SUMS, classes), 0, 1, NAN);
    if (classes > 5)
        scores->top5 = cn_sum_within((double)sums[TOP5] / rows, 0, 1, NAN);
    if (classes && shape.rows > 1)
        scores->perplexity = exp(scores->loss);
}

// Lets a version whose sums cannot be count as not measured. All members do, by the same sums.
static void check_sums(const struct cn_session *session, float *sums, size_t count)
{
    if (cn_sum_is_measured(sums[LOSS], sums[CORRECT], sums[ROWS]))
        return;
    cn_log(CN_LOG_WARN, "session",
           "after round %u: the version counts as not measured, as the members' results add up to "
           "loss %g and %g of %g right: a member lies or is broken",
           session->held.round, (double)sums[LOSS], (double)sums[CORRECT], (double)sums[ROWS]);
    memset(sums, 0, count * sizeof(*sums));
}

// Measures the trainer's weights on the held-out samples of all members.
static cn_err measure(struct cn_session *session, struct cn_collective *collective, float kept[3])
{
    size_t classes = cn_trainer_classes(session->trainer), count = SUMS + 3 * classes;
    float *sums = calloc(count, sizeof(float));
    cn_err err = sums ? evaluate(session, collective, sums) : CN_ENOMEM;

    if (!err)
        err = cn_all_reduce(collective, CN_REDUCE_SUM, sums, count);
    if (!err) {
        check_sums(session, sums, count);
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

// Sets local to a copy of the values with the group's own tensors, which the caller frees; NULL
// where no tensor is local.
static cn_err copy_localized(const struct cn_session *session, const float *values, float **local)
{
    size_t size = session->layout->total * sizeof(float);

    *local = NULL;
    if (!cn_session_has_local(session))
        return CN_OK;
    *local = cn_scratch_allocate(size);
    if (!*local)
        return CN_ENOMEM;
    memcpy(*local, values, size);
    cn_session_localize(session, *local);
    return CN_OK;
}

// Replaces the model file at once, because an application on the board may load it at any time. The
// model is the group's own where tensors are local.
static cn_err publish_model(struct cn_session *session)
{
    const struct cn_session_config *config = &session->config;
    struct cn_store *store = config->published ? config->published : config->store;
    struct cn_store_writer writer;
    float *local;
    cn_err err = copy_localized(session, session->held.base, &local);

    if (!err)
        err = cn_store_writer_begin(store, MODEL_FILE, &writer);
    if (err) {
        cn_scratch_free(local);
        return err;
    }
    err = cn_export_onnx_pieces(session->onnx, session->layout, local ? local : session->held.base,
                                CN_EXPORT_INFERENCE, write_piece, &writer);
    cn_scratch_free(local);
    return cn_store_writer_end(&writer, err);
}

// Says once that the model file stays that of an older version, and once that it is replaced again.
// Training does not need the file.
static void note_published(struct cn_session *session, cn_err err)
{
    const char *state = session->config.settings->state;
    uint64_t available;
    char room[48] = "";

    if (err && !session->disk.model_unsaved) {
        if (cn_platform_disk_free(state, &available) == CN_OK)
            snprintf(room, sizeof(room), ", %" PRIu64 " bytes are free", available);
        cn_log(CN_LOG_WARN, "session",
               "%s/%s is not replaced, it stays that of an older round: %s%s", state, MODEL_FILE,
               cn_err_text(err), room);
    } else if (!err && session->disk.model_unsaved) {
        cn_log(CN_LOG_INFO, "session", "%s/%s is replaced again", state, MODEL_FILE);
    }
    session->disk.model_unsaved = err != CN_OK;
}

// A version is measured with the tensors that this group would use.
static cn_err measure_version(struct cn_session *session, struct cn_collective *collective,
                              const float *values, float kept[3])
{
    float *local, *part = NULL;
    cn_err err = copy_localized(session, values, &local);

    if (local)
        values = local;
    if (!err)
        err = cn_session_copy_part(session, values, &part);
    if (!err)
        err = cn_trainer_lend_weights(session->trainer, part ? part : values);
    if (!err)
        err = measure(session, collective, kept);
    (void)cn_trainer_lend_weights(session->trainer, NULL);
    free(part);
    cn_scratch_free(local);
    return err;
}

// Notes the version that the session has now. Without a finite loss it counts as not measured.
static void note_version(struct cn_session *session, uint32_t number,
                         const uint8_t digest[CN_DIGEST_SIZE], const uint8_t parent[CN_DIGEST_SIZE],
                         const float sums[3])
{
    struct cn_checkpoint *held = &session->held;
    bool measured = isfinite(sums[LOSS]);

    session->measured.scores.version = number;
    held->held_out_loss = measured ? (double)sums[LOSS] : 0;
    held->held_out_correct = measured ? (uint64_t)sums[CORRECT] : 0;
    held->held_out_count = measured ? (uint64_t)sums[ROWS] : 0;
    held->phase = CN_PHASE_BASE;
    held->version = number;
    memcpy(held->base_digest, digest, CN_DIGEST_SIZE);
    memcpy(held->base_parent, parent, CN_DIGEST_SIZE);
}

// Logs which local tensors start from the version's values. A board without a state installs a
// version only if no member has a state from which their values could come.
static void note_local_lost(const struct cn_session *session, uint32_t number)
{
    char text[CN_LOCAL_TEXT_SIZE];

    cn_local_tensors_text(session->layout, text);
    if (session->held.phase == CN_PHASE_EMPTY && number && text[0])
        cn_log(CN_LOG_WARN, "session",
               "version %u is the group's first: no member has what the group keeps for itself, so "
               "it begins as in version 0: %s",
               number, text);
}

cn_err cn_session_install(struct cn_session *session, struct cn_collective *collective,
                          const struct cn_session_version *version)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_version_header header;
    float *values = NULL;
    float sums[3] = {0};
    uint64_t begun_us;
    cn_err err = cn_session_allocate(&values, session->layout->total);

    if (!err)
        err = decode_version(session, version, values, &header);
    begun_us = cn_platform_now_us();
    if (!err)
        err = measure_version(session, collective, values, sums);
    if (!err)
        cn_session_trace_work(session, "measure version", begun_us);
    if (err) {
        cn_scratch_free(values);
        return err;
    }
    note_local_lost(session, version->number);
    note_version(session, version->number, version->digest, header.parent, sums);
    cn_session_follow_rollback(session, version);
    cn_scratch_free(held->base);
    held->base = values;
    cn_session_change_row(session, CN_ROWS_BASE);
    err = cn_session_load_trainer(session);
    if (err)
        return err;
    cn_session_publish(session);
    return cn_session_save(session, 0);
}

void cn_session_publish(struct cn_session *session)
{
    if (session->held.base)
        note_published(session, publish_model(session));
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

// Only errors of the device count.
static cn_err publish_weights(struct cn_session *session)
{
    float *weights;
    cn_err err = cn_trainer_share_weights(session->trainer, &weights);

    if (err)
        return err;
    session->held.base = weights;
    note_published(session, publish_model(session));
    session->held.base = NULL;
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
    return publish_weights(session);
}
