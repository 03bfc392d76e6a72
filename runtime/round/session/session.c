#include "runtime/round/session/session_private.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/tensor_rules.h"
#include "runtime/update/update.h"
#include "runtime/update/variate.h"
#include "runtime/update/version.h"

cn_err cn_session_allocate(float **array, size_t total)
{
    if (*array)
        return CN_OK;
    *array = total > SIZE_MAX / sizeof(float) ? NULL : cn_scratch_allocate(total * sizeof(float));
    return *array ? CN_OK : CN_ENOMEM;
}

// Returns the bytes of a copy of this board's part of a model; 0 without parts.
static uint64_t part_of(const struct cn_layout *whole, const struct cn_layout *own)
{
    return own == whole ? 0 : (uint64_t)own->total * sizeof(float);
}

static uint64_t version_arrives(const struct cn_layout *whole, const struct cn_layout *own)
{
    return cn_version_memory(whole) + part_of(whole, own);
}

static uint64_t version_and_variate_arrive(const struct cn_layout *whole,
                                           const struct cn_layout *own)
{
    return cn_variate_memory(whole) + part_of(whole, own);
}

// Returns what a step of the whole model takes beside a version that arrives.
static struct cn_trainer_need needs_of(const struct cn_trainer *trainer, uint32_t stage)
{
    struct cn_trainer_need need = cn_trainer_needs(trainer, stage);

    need.whole -= cn_trainer_plan(trainer)->arriving;
    return need;
}

static cn_err open_trainer(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_session_config *config = &session->config;
    const bool on_disk = cn_session_place_rows(session);
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
        .recompute = session->sharing.recompute,
        .arriving = config->alone                  ? NULL
                    : on_disk                      ? part_of
                    : cn_session_corrects(session) ? version_and_variate_arrive
                                                   : version_arrives,
        .shards = session->sharing.shards,
        .stage = session->sharing.stage,
        .weighs = config->job->parallel.kind == CN_PARALLEL_AUTO,
        .cut = cn_session_is_cut(session) ? &session->cut.at : NULL,
        .part = session->cut.part,
        .slots = session->cut.slots,
    };
    uint64_t least = 0;
    cn_err err;

    trainer.least = &least;
    if (trainer.cut) {
        cn_session_count_messages(session, trainer.messages);
        trainer.beside_messages = cn_session_sample_bytes(session);
    }
    cn_session_free_lanes(session);

    cn_trainer_close(session->trainer);
    session->trainer = NULL;
    session->sharing.shard = session->sharing.shards > 1 ? UINT32_MAX : 0;
    err = cn_trainer_open(session->onnx, &trainer, diag, &session->trainer);
    if (err) {
        session->chain.lacked.bytes = least;
        session->chain.lacked.part = session->cut.part;
        session->chain.lacked.shards = session->sharing.shards;
    }
    for (uint32_t s = 0; !err && trainer.weighs && !trainer.cut && s < CN_STAGE_WEIGHTS; s++)
        session->planning.needs[s] = needs_of(session->trainer, s + 1);
    return err ? err : cn_session_take_lanes(session);
}

// Opens the trainer of the whole model, with the smallest stage and the fewest shards that fit.
static cn_err open_smaller(struct cn_session *session, struct cn_diag *diag)
{
    uint32_t members = session->config.settings->group.member_count;
    cn_err err = CN_ENOMEM;

    if (session->config.job->parallel.kind != CN_PARALLEL_AUTO)
        return err;
    for (uint32_t stage = CN_STAGE_OPTIMIZER; stage <= CN_STAGE_WEIGHTS; stage++)
        for (uint32_t shards = 2; err == CN_ENOMEM && shards <= members; shards++) {
            cn_diag_init(diag);
            session->sharing.stage = stage;
            session->sharing.shards = shards;
            err = open_trainer(session, diag);
        }
    return err;
}

// Logs why a trainer could not be opened, else lets it take part in the steps.
static cn_err note_opened(struct cn_session *session, cn_err err, const struct cn_diag *diag)
{
    for (size_t i = 0; err && i < diag->count && i < CN_DIAG_LINES; i++)
        cn_log(CN_LOG_ERROR, "session", "with %u parts, %u shards, stage %u: %s",
               session->cut.at.parts > 1 ? session->cut.at.parts : 1, session->sharing.shards,
               session->sharing.stage, diag->lines[i]);
    if (!err && session->reducer)
        session->reducer->trainer = session->trainer;
    if (!err && session->reducer && session->reducer->choice.bucket)
        err = cn_trainer_set_buckets(session->trainer,
                                     session->reducer->choice.bucket / sizeof(float));
    return err;
}

cn_err cn_session_try_trainer(struct cn_session *session)
{
    struct cn_diag diag;

    cn_diag_init(&diag);
    return note_opened(session, open_trainer(session, &diag), &diag);
}

cn_err cn_session_try_whole(struct cn_session *session)
{
    struct cn_diag diag;
    cn_err err;

    cn_diag_init(&diag);
    session->sharing.shards = 1;
    session->sharing.stage = cn_session_job_stage(session->config.job);
    session->sharing.recompute = CN_RECOMPUTE_NONE;
    err = open_trainer(session, &diag);
    if (err == CN_ENOMEM)
        err = open_smaller(session, &diag);
    return note_opened(session, err, &diag);
}

cn_err cn_session_reopen_trainer(struct cn_session *session, uint32_t shards, uint32_t stage,
                                 enum cn_recompute recompute)
{
    uint32_t shards_before = session->sharing.shards, stage_before = session->sharing.stage;
    enum cn_recompute recompute_before = session->sharing.recompute;
    cn_err err;

    session->sharing.shards = shards;
    session->sharing.stage = stage;
    session->sharing.recompute = recompute;
    err = cn_session_try_trainer(session);
    if (!err)
        return CN_OK;
    session->sharing.shards = shards_before;
    session->sharing.stage = stage_before;
    session->sharing.recompute = recompute_before;
    return cn_session_try_trainer(session) ? CN_EWEDGED : err; // without a trainer it restarts
}

// Says which tensors each group keeps: a shared layer in that list, or a personal one missing from
// it, is a mistake that nothing else shows.
static void note_local(const struct cn_session *session)
{
    char text[CN_LOCAL_TEXT_SIZE];

    cn_local_tensors_text(session->layout, text);
    if (text[0])
        cn_log(CN_LOG_INFO, "session", "the group keeps for itself: %s", text);
}

// With "parallel: auto" a board that cannot hold even a share of the whole model may hold a part.
static cn_err open_some_part(struct cn_session *session, struct cn_diag *diag)
{
    uint32_t members = session->config.settings->group.member_count;
    struct cn_diag first = *diag;
    cn_err err = CN_ENOMEM;

    if (!cn_session_may_cut(session))
        return err;
    session->sharing.shards = 1;
    session->sharing.stage = CN_STAGE_OPTIMIZER;
    for (uint32_t parts = 2; err == CN_ENOMEM && parts <= members; parts++) {
        cn_diag_init(diag);
        err = cn_session_cut_into(session, parts, diag);
        if (!err)
            err = open_trainer(session, diag);
    }
    if (!err)
        return CN_OK;
    *diag = first; // nobody asked for a cut: the whole model does not fit
    return CN_ENOMEM;
}

// With turns a board holds each part in some round. Opens them one after the other, so that one
// that does not fit is told now, and last the first round's.
static cn_err open_parts(struct cn_session *session, struct cn_diag *diag)
{
    uint32_t parts = session->cut.at.parts, first = session->cut.part;

    for (uint32_t p = 1; cn_session_takes_turns(session) && p < parts; p++) {
        uint32_t part = (first + p) % parts;
        cn_err err;

        cn_session_set_part(session, part);
        err = open_trainer(session, diag);
        if (err == CN_ENOMEM)
            cn_diag_add(diag,
                        "part %u of %u: with data.scope own each board holds each part in some "
                        "round, and needs the memory",
                        part + 1, parts);
        if (err)
            return err;
    }
    if (cn_session_takes_turns(session))
        cn_session_set_part(session, first);
    return open_trainer(session, diag);
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
        err = cn_session_cut_model(session, diag);
    if (!err)
        err = open_parts(session, diag);
    if (err == CN_ENOMEM)
        err = open_smaller(session, diag);
    if (err == CN_ENOMEM)
        err = open_some_part(session, diag);
    if (err)
        return err;
    if (config->file)
        cn_onnx_file_forget(config->file);
    if (!cn_session_is_cut(session)) // else it is the whole model's already
        err = cn_layout_copy(cn_trainer_layout(session->trainer), &session->layout_own);
    if (!err)
        err = cn_tensor_rules_set(&session->layout_own, config->job, diag);
    if (err)
        return err;
    session->layout = &session->layout_own;
    note_local(session);
    (void)cn_session_place_rows(session);
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
    cn_session_note_rows(session, false);
}

uint64_t cn_session_steps_before(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;

    const struct cn_job *job = session->config.job;
    uint32_t most =
        job->local_steps_most > job->local_steps ? job->local_steps_most : job->local_steps;

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
    err = open_model(session, diag);
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
    if (err) {
        cn_checkpoint_deinit(&taken);
        return err;
    }
    taken.counter = session->held.counter;
    if (taken.epoch < session->held.epoch)
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
