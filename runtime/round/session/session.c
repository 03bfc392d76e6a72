#include "runtime/round/session/session_private.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update.h"

// Largest multiple of the job's steps that the round of another member may have: the job may have
// given it more steps than it gives now.
#define STEPS_TIMES 16

cn_err cn_session_allocate(float **array, size_t total)
{
    if (*array)
        return CN_OK;
    *array = total > SIZE_MAX / sizeof(float) ? NULL : cn_scratch_allocate(total * sizeof(float));
    return *array ? CN_OK : CN_ENOMEM;
}

static void start_empty(struct cn_session *session)
{
    cn_checkpoint_deinit(&session->held);
    session->held = (struct cn_checkpoint){
        .run = session->config.run,
        .lineage = session->config.lineage,
        .phase = CN_PHASE_EMPTY,
        .total = session->layout->total,
    };
    memcpy(session->held.graph, session->config.graph, CN_DIGEST_SIZE);
    cn_session_note_rows(session, false);
}

uint64_t cn_session_steps_before(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;

    const struct cn_job *job = session->config.job;
    uint32_t most = cn_job_most_steps(job);

    return held->round ? (uint64_t)(held->round - 1) * most + cn_session_position(session) : 0;
}

// Sets the weights that the proximal term pulls to: those that the round began with.
static cn_err set_base(struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    float *local;
    cn_err err;

    if (!(session->config.job->rules.proximal > 0) || !cn_session_has_local(session))
        return cn_session_put_row(session, cn_trainer_set_base, held->base);
    local = cn_scratch_allocate(held->total * sizeof(*local));
    if (!local)
        return CN_ENOMEM;
    memcpy(local, held->base, held->total * sizeof(*local));
    cn_session_localize(session, local);
    err = cn_session_put_row(session, cn_trainer_set_base, local);
    cn_scratch_free(local);
    return err;
}

// Loads the held state into the trainer. Arrays that a stored state leaves out are zeros. While an
// update is in the outbox, one of its successors will be the residual.
cn_err cn_session_load_trainer(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    const float *weights;
    cn_err err;

    if (cn_session_is_alone(session))
        return cn_session_resume_trainer(session);
    err = cn_session_recall_rows(session, CN_ROWS_ALL);
    weights = held->phase == CN_PHASE_TRAIN ? held->weights : held->base;
    if (!err && (held->phase == CN_PHASE_BASE || held->phase == CN_PHASE_TRAIN))
        err = cn_session_allocate_residual(session);
    if (!err && held->phase == CN_PHASE_TRAIN && !cn_session_divides_state(session))
        err = cn_session_allocate_optimizer(session);
    session->steps.pending = (struct cn_reduced_step){0};
    if (!err)
        err = cn_trainer_discard(session->trainer);
    if (err || !weights)
        return err;
    err = cn_session_put_row(session, cn_trainer_set_weights, weights);
    if (!err)
        err = set_base(session);
    if (!err)
        err = cn_session_put_row(session, cn_trainer_set_optimizer, held->optimizer);
    if (!err && cn_trainer_has_second(session->trainer))
        err = cn_session_put_row(session, cn_trainer_set_second, held->second);
    cn_trainer_set_step(session->trainer, cn_session_steps_before(session), held->updates);
    cn_trainer_set_loss_scale(session->trainer, held->loss_scale);
    return err;
}

static bool fits_run(const struct cn_session *session, const struct cn_checkpoint *held)
{
    bool of_run = held->run == session->config.run ||
                  (session->config.older_run && held->run == session->config.older_run);

    return of_run && held->lineage == session->config.lineage &&
           held->total == session->layout->total &&
           (held->base || held->phase != CN_PHASE_TRAIN || cn_session_is_alone(session)) &&
           memcmp(held->graph, session->config.graph, CN_DIGEST_SIZE) == 0;
}

// Returns whether the stored state must stay: no other board has what a board alone has trained.
static bool must_stay(const struct cn_session *session)
{
    const struct cn_session_config *config = &session->config;
    bool trained = session->held.version > 0 || session->held.phase == CN_PHASE_TRAIN;

    return config->alone && trained && !config->anew && !config->replaces &&
           !fits_run(session, &session->held);
}

static cn_err load_held(struct cn_session *session, struct cn_diag *diag)
{
    size_t total = session->layout->total, frame = cn_update_size_max(session->layout);
    struct cn_checkpoint_file *file = NULL;
    cn_err err;

    if (!cn_session_is_alone(session))
        return cn_checkpoint_load(session->config.store, total, frame, diag, &session->held);
    err = cn_checkpoint_open(session->config.store, total, frame, diag, &file, &session->held);
    if (!err && !session->config.anew && fits_run(session, &session->held)) {
        err = cn_session_take_rows(session, file);
        if (err == CN_EDIGEST || err == CN_ERANGE) // the bytes were right when the file was opened
            err = CN_EIO;
    }
    cn_checkpoint_close(file);
    return err;
}

static cn_err resume(struct cn_session *session, struct cn_diag *diag)
{
    char local[CN_LOCAL_TEXT_SIZE];
    uint64_t counter, resets;
    bool renamed;
    cn_err err;

    err = load_held(session, diag);
    if (err && err != CN_ENOTFOUND && err != CN_EFORMAT && err != CN_ERANGE)
        return err;
    if (err && session->config.keeps) // CN_ERANGE: of a larger model
        return err == CN_ERANGE ? CN_ECONFLICT : CN_EEXIST;
    if (err == CN_EFORMAT || err == CN_ERANGE) {
        start_empty(session);
        session->held.resets = 1;
        cn_local_tensors_text(session->layout, local);
        cn_log(CN_LOG_WARN, "session",
               "no stored state can be used: starting from the beginning; the residual is lost "
               "unless another member has it%s%s",
               local[0] ? ", and so is what the group keeps for itself: " : "", local);
    } else if (err) {
        start_empty(session);
    } else if (must_stay(session)) {
        return CN_ECONFLICT;
    } else if (session->config.anew || !fits_run(session, &session->held)) {
        cn_log(CN_LOG_INFO, "session", "the stored state %s; starting from the beginning",
               session->config.anew ? "is given up" : "belongs to another run");
        counter = session->held.counter;
        resets = session->held.resets;
        start_empty(session);
        session->held.counter = counter; // known, so the first save need not look through the slots
        if (session->config.anew && !session->config.alone)
            session->held.resets = resets + 1; // the residual of this run is lost
    } else {
        cn_session_note_rows(session, true);
        cn_log(CN_LOG_INFO, "session", "resuming at round %u, step %u (version %u)",
               session->held.round, session->held.step, session->held.version);
    }
    renamed = session->held.run != session->config.run;
    session->held.run = session->config.run;
    cn_session_recall_given_up(session);
    err = cn_session_load_trainer(session);
    return err || !renamed ? err : cn_session_save(session, 0);
}

cn_err cn_session_open(const struct cn_session_config *config, struct cn_diag *diag,
                       struct cn_session **result)
{
    struct cn_session *session = calloc(1, sizeof(*session));
    cn_err err;

    if (!session)
        return CN_ENOMEM;
    session->config = *config;
    err = cn_session_open_model(session, diag);
    if (!err)
        err = cn_session_open_data(session, diag);
    if (!err)
        err = cn_session_look_at_samples(session, diag);
    if (!err)
        err = resume(session, diag);
    if (!err)
        err = cn_session_check_base(session, diag);
    if (err) {
        cn_session_close(session);
        return err;
    }
    session->disk.saved_ms = cn_platform_now_ms();
    cn_session_plan_alike(session);
    cn_session_let_rows_go(session);
    *result = session;
    return CN_OK;
}

void cn_session_close(struct cn_session *session)
{
    if (!session)
        return;
    cn_checkpoint_deinit(&session->held);
    cn_scratch_free(session->arriving.part.data);
    free(session->measured.spectrum);
    free(session->planning.sets);
    cn_batch_deinit(&session->data.batch);
    cn_reader_close(session->data.reader);
    cn_dataset_close(session->data.set);
    cn_session_free_lanes(session);
    cn_trainer_close(session->trainer);
    cn_onnx_close(session->onnx);
    cn_layout_deinit(&session->layout_own);
    free(session->cut.holders);
    free(session->chain.log);
    free(session);
}

uint64_t cn_session_memory(const struct cn_session *session)
{
    struct cn_sample_shape shape;

    cn_trainer_sample_shape(session->trainer, &shape);
    return cn_trainer_memory(session->trainer) +
           CN_SESSION_BATCHES * cn_batch_memory(&shape, session->config.job->batch);
}

bool cn_session_round_done(const struct cn_session *session)
{
    return cn_session_position(session) >= session->held.steps;
}

uint32_t cn_session_position(const struct cn_session *session)
{
    return session->held.step + session->steps.unsaved;
}

static void note_disk(const struct cn_session *session, cn_err saved)
{
    if (session->config.disk)
        atomic_store(session->config.disk, saved);
}

// Updates the arrays of the held state that a save writes from memory.
static cn_err update_arrays(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err;

    if (held->phase != CN_PHASE_TRAIN)
        return CN_OK;
    if (cn_dataset_has_changed(session->data.set))
        return CN_EWEDGED;
    if (cn_session_is_alone(session)) {
        held->updates =
            cn_trainer_has_second(session->trainer) ? cn_trainer_updates(session->trainer) : 0;
        return CN_OK;
    }
    if (cn_session_is_sharded(session))
        return cn_session_recall(session);
    err = cn_trainer_get_weights(session->trainer, held->weights);
    if (err)
        return err;
    return cn_session_keep_optimizer(session);
}

cn_err cn_session_snapshot(struct cn_session *session)
{
    cn_err err = cn_session_recall_rows(session, CN_ROWS_ALL);

    return err ? err : update_arrays(session);
}

bool cn_session_has_room(const struct cn_session *session)
{
    const struct cn_settings *settings = session->config.settings;
    uint64_t available;

    return !settings->reserve || cn_platform_disk_free(settings->state, &available) ||
           available >= settings->reserve;
}

void cn_session_note_saved(struct cn_session *session, cn_err saved)
{
    bool reserved = saved == CN_ENOSPC && !cn_session_has_room(session);

    if (saved && !session->disk.full)
        cn_log(CN_LOG_WARN, "session", "the checkpoint was not saved: %s; the last good one stays",
               reserved ? "the disk has less free than storage.reserve" : cn_err_text(saved));
    session->disk.full = saved != CN_OK;
    note_disk(session, saved);
}

cn_err cn_session_save(struct cn_session *session, uint64_t interval_ms)
{
    uint64_t now = cn_platform_now_ms();
    cn_err err, saved;

    if (session->sharing.let_go || (interval_ms && cn_session_is_sharded(session)))
        return CN_OK; // the state is on the disk already; the members store the next one together
    if (interval_ms && now - session->disk.saved_ms < interval_ms)
        return CN_OK;
    session->disk.saved_ms = now;
    err = update_arrays(session);
    if (err)
        return err;
    if (!cn_session_has_room(session))
        saved = CN_ENOSPC;
    else if (cn_session_is_alone(session))
        err = cn_session_save_rows(session, &saved);
    else
        saved = cn_session_save_held(session);
    if (!err)
        cn_session_note_saved(session, saved);
    return err;
}

static bool steps_are_possible(const struct cn_session *session, const struct cn_checkpoint *taken)
{
    const struct cn_job *job = session->config.job;
    const struct cn_checkpoint *held = &session->held;
    uint64_t most = cn_job_most_steps(job);

    return taken->phase != CN_PHASE_TRAIN || taken->steps <= STEPS_TIMES * most ||
           (taken->round == held->round && taken->steps == held->steps);
}

// Returns whether these values of a row are at most `largest` in magnitude, and none is NaN.
static bool row_is_within(const struct cn_row *row, size_t first, size_t count, float largest)
{
    bool within = true;

    for (size_t i = first; row->data && within && i < first + count; i++) {
        float value;

        cn_row_read(row, i, 1, &value);
        within = fabsf(value) <= largest;
    }
    return within;
}

// Checks rows of changes that wait to be sent. Local tensors wait for ever, with any values.
static bool waiting_is_usable(const struct cn_session *session, const struct cn_row *row)
{
    const struct cn_layout *layout = session->layout;
    bool usable = true;

    for (size_t t = 0; usable && t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        usable = row_is_within(row, tensor->offset, tensor->count,
                               tensor->local ? FLT_MAX : CN_SESSION_WAITING_MAX);
    }
    return usable;
}

// Checks what outlives a round, so that a state that a member made up does no harm for good.
static bool is_usable(const struct cn_session *session, const struct cn_checkpoint *taken)
{
    const struct cn_row control[] = {{.data = taken->control.own}, {.data = taken->control.server}};

    return steps_are_possible(session, taken) && cn_rate_guard_is_valid(&taken->guard) &&
           taken->cursor <= INT64_MAX && isfinite(taken->control.inverse) &&
           waiting_is_usable(session, &taken->residual) &&
           waiting_is_usable(session, &taken->next_residual) &&
           waiting_is_usable(session, &taken->change) &&
           row_is_within(&control[0], 0, taken->total, FLT_MAX) &&
           row_is_within(&control[1], 0, taken->total, FLT_MAX);
}

cn_err cn_session_take(struct cn_session *session, const uint8_t *bytes, size_t size, uint32_t most)
{
    struct cn_checkpoint taken = {0};
    struct cn_diag diag;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_checkpoint_decode(bytes, size, session->layout->total,
                               cn_update_size_max(session->layout), &diag, &taken);
    if (err)
        return err;
    if (!fits_run(session, &taken))
        err = CN_ESTALE;
    else if (taken.round > most || taken.version > most || taken.counted.round > most)
        err = CN_ERANGE;
    else if (!is_usable(session, &taken))
        err = CN_EFORMAT;
    if (err) {
        cn_checkpoint_deinit(&taken);
        return err;
    }
    taken.counter = session->held.counter;
    taken.epoch = session->held.epoch;
    cn_checkpoint_deinit(&session->held);
    session->held = taken;
    session->sharing.let_go = false;
    cn_session_note_rows(session, false);
    cn_session_mark_synced(session);
    err = taken.phase == CN_PHASE_TRAIN ? cn_session_take_files(session, taken.round) : CN_OK;
    if (!err)
        err = cn_session_load_trainer(session);
    if (err)
        return err;
    cn_session_publish(session);
    return cn_session_save(session, 0);
}

size_t cn_session_state_limit(const struct cn_session *session)
{
    return 4096 + 9 * session->layout->total * sizeof(float) + cn_update_size_max(session->layout);
}
