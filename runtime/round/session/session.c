#include "runtime/round/session/session_private.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/update/tensor_rules.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

#define DISK_RETRY_MS 1000

cn_err cn_session_allocate(float **array, size_t total)
{
    if (*array)
        return CN_OK;
    *array = calloc(total ? total : 1, sizeof(float));
    return *array ? CN_OK : CN_ENOMEM;
}

static void release(float **array)
{
    free(*array);
    *array = NULL;
}

static cn_err open_trainer(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_session_config *config = &session->config;
    struct cn_trainer_config trainer = {
        .compute = config->compute,
        .device = cn_gpus_first(config->settings),
        .threads = config->settings->threads ? config->settings->threads : cn_platform_cpu_count(),
        .precision = config->settings->precision,
        .batch = config->job->batch,
        .loss = config->job->loss,
        .learning_rate = (float)config->job->learning_rate,
        .momentum = (float)config->job->momentum,
        .weight_decay = (float)config->job->weight_decay,
        .rules = &config->job->rules,
        .steps = (uint64_t)config->job->rounds * config->job->local_steps,
        .seed = config->job->seed,
        .memory_limit = config->settings->memory_limit,
        .arriving = config->alone ? NULL : cn_version_memory,
        .shards = session->sharing.shards,
        .stage = session->sharing.stage,
        .weighs = config->job->parallel.kind == CN_PARALLEL_AUTO,
    };

    cn_trainer_close(session->trainer);
    session->trainer = NULL;
    return cn_trainer_open(session->onnx, &trainer, diag, &session->trainer);
}

cn_err cn_session_reopen_trainer(struct cn_session *session, uint32_t shards, uint32_t stage)
{
    uint32_t shards_before = session->sharing.shards, stage_before = session->sharing.stage;
    struct cn_diag diag;
    cn_err err, again;

    cn_diag_init(&diag);
    session->sharing.shards = shards;
    session->sharing.stage = stage;
    err = open_trainer(session, &diag);
    for (size_t i = 0; i < diag.count && i < CN_DIAG_LINES; i++)
        cn_log(CN_LOG_ERROR, "session", "with %u shards, stage %u: %s", shards, stage,
               diag.lines[i]);
    if (!err && session->reducer)
        session->reducer->trainer = session->trainer;
    if (!err && session->reducer && session->reducer->choice.bucket)
        err = cn_trainer_set_buckets(session->trainer,
                                     session->reducer->choice.bucket / sizeof(float));
    if (!err)
        return CN_OK;
    session->sharing.shards = shards_before;
    session->sharing.stage = stage_before;
    again = open_trainer(session, &diag);
    return again ? CN_EWEDGED : err; // the process restarts, because it has no trainer
}

// Opens the trainer. With "parallel: auto" a board that cannot hold the whole model may still hold
// a share.
static cn_err open_smaller(struct cn_session *session, struct cn_diag *diag)
{
    uint32_t members = session->config.settings->group.member_count;
    cn_err err = CN_ENOMEM;

    if (session->config.job->parallel.kind != CN_PARALLEL_AUTO)
        return err;
    for (session->sharing.stage = CN_STAGE_OPTIMIZER;
         err == CN_ENOMEM && session->sharing.stage <= CN_STAGE_WEIGHTS; session->sharing.stage++)
        for (uint32_t shards = 2; err == CN_ENOMEM && shards <= members; shards++) {
            cn_diag_init(diag);
            session->sharing.shards = shards;
            err = open_trainer(session, diag);
            if (!err)
                return CN_OK;
        }
    return err;
}

static cn_err open_model(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_session_config *config = &session->config;
    uint32_t shards = config->job->parallel.shard, members = config->settings->group.member_count;
    struct cn_sample_shape shape;
    cn_err err;

    session->sharing.shards = members > 1 && shards > 1 ? (shards < members ? shards : members) : 1;
    session->sharing.stage = cn_session_job_stage(config->job);
    err = cn_onnx_open(config->model, config->model_size, diag, &session->onnx);
    if (!err)
        err = open_trainer(session, diag);
    if (err == CN_ENOMEM)
        err = open_smaller(session, diag);
    if (err)
        return err;
    if (config->file)
        cn_onnx_file_forget(config->file);
    err = cn_layout_copy(cn_trainer_layout(session->trainer), &session->layout_own);
    if (!err)
        err = cn_tensor_rules_set(&session->layout_own, config->job, diag);
    if (err)
        return err;
    session->layout = &session->layout_own;
    cn_trainer_sample_shape(session->trainer, &shape);
    session->data.weighted = shape.weighted;
    return cn_batch_init(&shape, config->job->batch, &session->data.batch);
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
}

uint64_t cn_session_steps_before(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;

    const struct cn_job *job = session->config.job;
    uint32_t most =
        job->local_steps_most > job->local_steps ? job->local_steps_most : job->local_steps;

    return held->round ? (uint64_t)(held->round - 1) * most + cn_session_position(session) : 0;
}

// Loads the held state into the trainer. Arrays that a stored state leaves out are zeros. While an
// update is in the outbox, one of its successors will be the residual.
cn_err cn_session_load_trainer(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    const float *weights = held->phase == CN_PHASE_TRAIN ? held->weights : held->base;
    cn_err err = CN_OK;

    if (cn_session_is_alone(session))
        return cn_session_resume_trainer(session);
    if (held->phase == CN_PHASE_BASE || held->phase == CN_PHASE_TRAIN)
        err = cn_session_allocate_residual(session);
    if (!err && held->phase == CN_PHASE_TRAIN && session->sharing.shards == 1)
        err = cn_session_allocate_optimizer(session);
    session->steps.pending = (struct cn_reduced_step){0};
    if (!err)
        err = cn_trainer_discard(session->trainer);
    if (err || !weights)
        return err;
    err = cn_trainer_set_weights(session->trainer, weights);
    if (!err)
        err = cn_trainer_set_base(session->trainer, held->base);
    if (!err)
        err = cn_trainer_set_optimizer(session->trainer, held->optimizer);
    if (!err && cn_trainer_has_second(session->trainer))
        err = cn_trainer_set_second(session->trainer, held->second);
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
    uint64_t counter;
    bool renamed;
    cn_err err;

    err = load_held(session, diag);
    if (err && err != CN_ENOTFOUND && err != CN_EFORMAT && err != CN_ERANGE)
        return err;
    if (err == CN_EFORMAT || err == CN_ERANGE) {
        start_empty(session);
        session->held.resets = 1;
        cn_log(CN_LOG_WARN, "session",
               "no stored state can be used: starting from the beginning; the residual is lost "
               "unless another member has it");
    } else if (err) {
        start_empty(session);
    } else if (must_stay(session)) {
        return CN_ECONFLICT;
    } else if (session->config.anew || !fits_run(session, &session->held)) {
        cn_log(CN_LOG_INFO, "session",
               "the stored state belongs to another run; starting from the beginning");
        counter = session->held.counter;
        start_empty(session);
        session->held.counter = counter; // known, so the first save need not look through the slots
    } else {
        cn_log(CN_LOG_INFO, "session", "resuming at round %u, step %u (version %u)",
               session->held.round, session->held.step, session->held.version);
    }
    renamed = session->held.run != session->config.run;
    session->held.run = session->config.run;
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
    err = open_model(session, diag);
    if (!err)
        err = cn_session_open_data(session, diag);
    if (!err)
        err = resume(session, diag);
    if (err) {
        cn_session_close(session);
        return err;
    }
    session->disk.saved_ms = cn_platform_now_ms();
    cn_session_plan_alike(session);
    *result = session;
    return CN_OK;
}

void cn_session_close(struct cn_session *session)
{
    if (!session)
        return;
    cn_checkpoint_deinit(&session->held);
    cn_buffer_deinit(&session->arriving.part);
    free(session->measured.spectrum);
    free(session->planning.sets);
    cn_batch_deinit(&session->data.batch);
    cn_reader_close(session->data.reader);
    cn_dataset_close(session->data.set);
    cn_trainer_close(session->trainer);
    cn_onnx_close(session->onnx);
    cn_layout_deinit(&session->layout_own);
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

// Waits for wait_ms or until the node is told to stop.
static bool is_stopped(const struct cn_session *session, int wait_ms)
{
    struct pollfd stop = {.fd = session->config.stop_fd, .events = POLLIN};

    return poll(&stop, 1, wait_ms) > 0;
}

static void note_disk(const struct cn_session *session, cn_err saved)
{
    if (session->config.disk)
        atomic_store(session->config.disk, saved);
}

// Says once that this board cannot store its updates, and once that it can again. elsewhere:
// another member has stored this one.
static void note_outbox(struct cn_session *session, cn_err saved, bool elsewhere)
{
    const struct cn_settings *settings = session->config.settings;
    uint64_t available;
    char room[48] = "";

    if (saved && !session->disk.outbox_unsaved) {
        if (cn_platform_disk_free(settings->state, &available) == CN_OK)
            snprintf(room, sizeof(room), ", %llu bytes are free", (unsigned long long)available);
        cn_log(CN_LOG_WARN, "session", "%s: the update of %zu bytes cannot be stored: %s%s; %s",
               settings->state, session->held.frame_size, cn_err_text(saved), room,
               elsewhere ? "another member has it" : "trying again each second");
    } else if (!saved && session->disk.outbox_unsaved) {
        cn_log(CN_LOG_INFO, "session", "%s: updates can be stored again", settings->state);
    }
    session->disk.outbox_unsaved = saved != CN_OK;
}

// Returns when at least one member has the outbox on disk (a board alone: itself), before it is
// sent. A member that could not store it holds it in memory, so its full disk does not stop the
// others.
cn_err cn_session_secure_outbox(struct cn_session *session, struct cn_collective *collective)
{
    float counts[2]; // number of members that could not store it; number of all members
    bool stored;
    cn_err saved, err;

    do {
        saved = cn_checkpoint_save(session->config.store, &session->held);
        note_disk(session, saved);
        counts[0] = saved ? 1 : 0;
        counts[1] = 1;
        err = cn_all_reduce(collective, CN_REDUCE_SUM, counts, 2);
        if (err)
            return err;
        stored = counts[0] < counts[1];
        note_outbox(session, saved, stored);
        if (!stored && is_stopped(session, DISK_RETRY_MS))
            return CN_ECANCELED;
    } while (!stored);
    session->disk.saved_ms = cn_platform_now_ms();
    return CN_OK;
}

static cn_err compare_with_leader(struct cn_session *session, struct cn_collective *collective)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err;

    memcpy(digest, session->held.frame_digest, CN_DIGEST_SIZE);
    err = cn_broadcast(collective, 0, digest, sizeof(digest));
    if (err)
        return err;
    return memcmp(digest, session->held.frame_digest, CN_DIGEST_SIZE) ? CN_EDIGEST : CN_OK;
}

cn_err cn_session_finish(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_buffer frame;
    cn_err err;

    if (cn_dataset_has_changed(session->data.set))
        return CN_EWEDGED;
    cn_buffer_init(&frame, cn_update_size_max(session->layout));
    err = cn_session_catch_up(session, collective);
    if (!err && cn_session_is_sharded(session) && session->plan.trains &&
        session->config.job->keep_optimizer)
        err = cn_session_gather(session, collective);
    if (!err)
        err = cn_session_bring_weights(session, collective);
    if (!err) {
        cn_session_add_unsaved(session);
        err = cn_session_encode(session, &frame);
    }
    if (err) {
        cn_buffer_deinit(&frame);
        return err;
    }
    if (session->config.given_up)
        atomic_store(session->config.given_up, 0);
    held->phase = CN_PHASE_SEND;
    held->frame = frame.data; // the buffer's memory is now the frame's
    held->frame_size = frame.size;
    cn_crypto_digest(held->frame, held->frame_size, held->frame_digest);
    release(&held->weights);
    if (session->config.job->keep_optimizer)
        err = cn_session_keep_momentum(session);
    else
        cn_session_release_optimizer(session);
    if (err)
        return err;
    err = compare_with_leader(session, collective);
    if (err)
        return err;
    return cn_session_secure_outbox(session, collective);
}

cn_err cn_session_snapshot(struct cn_session *session)
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
    err = cn_session_snapshot(session);
    if (err)
        return err;
    if (!cn_session_has_room(session))
        saved = CN_ENOSPC;
    else if (cn_session_is_alone(session))
        err = cn_session_save_rows(session, &saved);
    else
        saved = cn_checkpoint_save(session->config.store, &session->held);
    if (!err)
        cn_session_note_saved(session, saved);
    return err;
}

cn_err cn_session_take(struct cn_session *session, const uint8_t *bytes, size_t size)
{
    struct cn_checkpoint taken = {0};
    struct cn_diag diag;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_checkpoint_decode(bytes, size, session->layout->total,
                               cn_update_size_max(session->layout), &diag, &taken);
    if (err)
        return err;
    if (!fits_run(session, &taken)) {
        cn_checkpoint_deinit(&taken);
        return CN_ESTALE;
    }
    taken.counter = session->held.counter;
    if (taken.epoch < session->held.epoch)
        taken.epoch = session->held.epoch;
    cn_checkpoint_deinit(&session->held);
    session->held = taken;
    session->sharing.let_go = false;
    cn_session_mark_synced(session);
    err = taken.phase == CN_PHASE_TRAIN ? cn_session_take_files(session, taken.round) : CN_OK;
    if (!err)
        err = cn_session_load_trainer(session);
    if (err)
        return err;
    return cn_session_save(session, 0);
}

size_t cn_session_state_limit(const struct cn_session *session)
{
    return 4096 + 7 * session->layout->total * sizeof(float) + cn_update_size_max(session->layout);
}
