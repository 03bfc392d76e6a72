#include "runtime/round/node/alone_best.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/engine/trainer/trainer_state.h"

#define RECORD_FILE "best"
#define RECORD_SIZE_FIRST 20  // the earliest record ends before the version in the file
#define RECORD_SIZE_BEFORE 24 // an earlier record ends before the loss
#define RECORD_SIZE_LOSS 32   // an earlier record ends before the metric
#define RECORD_SIZE 36

void cn_alone_best_begin(const struct cn_session *session)
{
    struct cn_store *store = cn_session_get_config(session)->store;
    cn_err err = store->ops->remove(store, RECORD_FILE);

    if (!err)
        err = store->ops->remove(store, CN_ALONE_BEST_FILE);
    if (err)
        cn_log(CN_LOG_WARN, "train", "%s of an earlier run is not removed: %s", CN_ALONE_BEST_FILE,
               cn_err_text(err));
}

static bool is_of_run(const struct cn_session *session, uint64_t run)
{
    const struct cn_session_config *config = cn_session_get_config(session);

    return run && (run == config->run || run == config->older_run);
}

static enum cn_metric metric_of(const struct cn_session *session)
{
    return cn_job_metric(cn_session_get_config(session)->job);
}

// The best value was that of another metric. The next version that is measured becomes the best.
static void forget_value(const struct cn_session *session, struct cn_alone_best *best)
{
    cn_log(CN_LOG_INFO, "train", "stop.metric is another one: the best round is sought anew");
    best->version = cn_session_held(session)->version;
    best->value = -INFINITY;
    best->loss = INFINITY;
}

// Patience counts across restarts; otherwise a run that was stopped would train longer.
void cn_alone_best_load(const struct cn_session *session, struct cn_alone_best *best)
{
    struct cn_store *store = cn_session_get_config(session)->store;
    uint8_t *bytes = NULL;
    size_t size = 0;

    *best = (struct cn_alone_best){0};
    if (store->ops->load(store, RECORD_FILE, RECORD_SIZE, &bytes, &size))
        return;
    if ((size == RECORD_SIZE || size == RECORD_SIZE_LOSS || size == RECORD_SIZE_BEFORE ||
         size == RECORD_SIZE_FIRST) &&
        is_of_run(session, cn_get_u64(bytes)) &&
        cn_get_u32(bytes + 8) <= cn_session_held(session)->version) {
        best->version = cn_get_u32(bytes + 8);
        best->value = cn_get_f64(bytes + 12);
        best->kept = size > RECORD_SIZE_FIRST ? cn_get_u32(bytes + 20) : 0;
        // Of equal versions the first stays where its loss is not known.
        best->loss = size >= RECORD_SIZE_LOSS ? cn_get_f64(bytes + 24) : -INFINITY;
        if (size == RECORD_SIZE && cn_get_u32(bytes + 32) != (uint32_t)metric_of(session))
            forget_value(session, best);
    }
    free(bytes);
}

static cn_err save_record(const struct cn_session *session, const struct cn_alone_best *best)
{
    uint8_t bytes[RECORD_SIZE];

    cn_put_u32(bytes + 32, (uint32_t)metric_of(session));
    cn_put_u64(bytes, cn_session_get_config(session)->run);
    cn_put_u32(bytes + 8, best->version);
    cn_put_f64(bytes + 12, best->value);
    cn_put_u32(bytes + 20, best->kept);
    cn_put_f64(bytes + 24, best->loss);
    return cn_store_replace(cn_session_get_config(session)->store, RECORD_FILE, bytes,
                            sizeof(bytes));
}

static cn_err write_piece(void *context, const void *piece, size_t size)
{
    return cn_store_writer_put(context, piece, size);
}

static cn_err save_model(struct cn_session *session)
{
    struct cn_trainer *trainer = cn_session_trainer(session);
    struct cn_store_writer writer;
    float *weights;
    cn_err err = cn_trainer_share_weights(trainer, &weights), returned;

    if (err)
        return err;
    err = cn_store_writer_begin(cn_session_get_config(session)->store, CN_ALONE_BEST_FILE, &writer);
    if (!err) {
        err = cn_export_onnx_pieces(cn_session_onnx(session), cn_session_layout(session), weights,
                                    CN_EXPORT_INFERENCE, write_piece, &writer);
        err = cn_store_writer_end(&writer, err);
    }
    returned = cn_trainer_return_weights(trainer);
    return err ? err : returned;
}

double cn_alone_value(const struct cn_session *session)
{
    const struct cn_checkpoint *held = cn_session_held(session);
    double count = held->held_out_count ? (double)held->held_out_count : NAN;

    return metric_of(session) == CN_METRIC_ACCURACY ? (double)held->held_out_correct / count
                                                    : held->held_out_loss / count;
}

// Returns the value of the version that was measured last, higher is better. NAN: not measured.
static double value_of(const struct cn_session *session)
{
    bool rises = cn_metric_rises(metric_of(session));

    return rises ? cn_alone_value(session) : -cn_alone_value(session);
}

cn_err cn_alone_best_forget(const struct cn_session *session)
{
    const struct cn_alone_best none = {
        .version = cn_session_held(session)->version, .value = -INFINITY, .loss = INFINITY};

    return save_record(session, &none);
}

static double loss_of(const struct cn_session *session)
{
    const struct cn_checkpoint *held = cn_session_held(session);

    return held->held_out_loss / (double)held->held_out_count;
}

// Compares as the aggregator does (aggregator/run/score.c). A version of which nothing is known is
// worse than each other one.
static bool is_better(const struct cn_alone_best *best, double value, double loss)
{
    if (best->version == 0)
        return true;
    return value > best->value || (value == best->value && loss < best->loss);
}

void cn_alone_best_note(struct cn_session *session, struct cn_alone_best *best)
{
    const struct cn_checkpoint *held = cn_session_held(session);
    double value = value_of(session), loss = loss_of(session);
    cn_err err = CN_OK;

    // A version that was noted, or forgotten, is not noted again when the program is restarted.
    if (!isfinite(value) || held->version <= best->version || !is_better(best, value, loss))
        return;
    best->version = held->version;
    best->value = value;
    best->loss = loss;
    if (held->phase == CN_PHASE_BASE)
        err = save_model(session);
    if (!err && held->phase == CN_PHASE_BASE)
        best->kept = held->version;
    if (err)
        cn_log(CN_LOG_WARN, "train", "%s was not replaced by the model of round %u: %s",
               CN_ALONE_BEST_FILE, held->version, cn_err_text(err));
    err = save_record(session, best);
    if (err)
        cn_log(CN_LOG_WARN, "train", "%s is not saved (%s): a restart would forget the best round",
               RECORD_FILE, cn_err_text(err));
}
