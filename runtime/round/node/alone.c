#include "runtime/round/node/alone.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/group/solo.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/alone_begin.h"
#include "runtime/round/node/status_file.h"
#include "runtime/round/upkeep/upkeep.h"

#define SAVE_MS 5000
#define STATUS_MS 1000
#define PAUSE_MS 200 // time between two checks during a pause
#define SAFETENSORS_FILE "model.safetensors"

struct alone {
    const struct cn_alone_config *config;
    struct cn_upkeep care;
    struct cn_status_file status;
    uint64_t status_ms;
    uint64_t paused_us; // time spent in pauses in this round
    struct cn_session *session;
    struct cn_collective *collective;
    struct cn_alone_best best;
};

// Returns the number of steps of the run that are done.
static uint64_t steps_done(const struct alone *alone)
{
    const struct cn_checkpoint *held = cn_session_held(alone->session);
    uint64_t rounds = held->phase == CN_PHASE_TRAIN ? held->round - 1 : held->version;

    return rounds * alone->config->settings->job.local_steps +
           (held->phase == CN_PHASE_TRAIN ? held->step : 0);
}

static bool is_enough(const struct alone *alone)
{
    return alone->config->steps && steps_done(alone) >= alone->config->steps;
}

static void write_status(struct alone *alone)
{
    alone->status_ms = cn_platform_now_ms();
    cn_status_file_write(&alone->status, alone->status_ms);
}

// Updates hooks and status. Returns whether training may continue.
static bool tend(struct alone *alone)
{
    uint64_t now_ms = cn_platform_now_ms();
    bool changed;

    cn_session_fill_progress(alone->session, &alone->status.progress);
    changed = cn_upkeep_poll(&alone->care, &alone->status.progress, now_ms);
    if (changed || now_ms - alone->status_ms >= STATUS_MS)
        write_status(alone);
    return !alone->care.care.pause;
}

// Waits while training must pause; called between two steps. Saves the state first, as at the end
// of the program.
static cn_err rest(struct alone *alone)
{
    uint64_t begun_us = cn_platform_now_us();
    cn_err err = CN_OK;

    if (tend(alone))
        return CN_OK;
    err = cn_session_save(alone->session, 0);
    while (!err && !tend(alone)) {
        if (atomic_load(alone->config->stop))
            err = CN_ECANCELED;
        else
            cn_platform_sleep_ms(PAUSE_MS);
    }
    alone->paused_us += cn_platform_now_us() - begun_us;
    return err;
}

static cn_err do_step(struct alone *alone)
{
    const struct cn_alone_config *config = alone->config;
    struct cn_alone_step step = {.rate =
                                     (double)cn_trainer_rate(cn_session_trainer(alone->session))};
    struct cn_step_flags flags = {0};
    uint64_t begun_us = cn_platform_now_us();
    cn_err err = cn_session_step(alone->session, alone->collective, &flags);

    if (err || !config->on_step)
        return err;
    step.ms = (double)(cn_platform_now_us() - begun_us) / 1000;
    step.step = steps_done(alone);
    step.loss = cn_session_step_loss(alone->session);
    config->on_step(config->context, &step);
    return CN_OK;
}

static cn_err train_round(struct alone *alone)
{
    struct cn_session *session = alone->session;
    const struct cn_checkpoint *held = cn_session_held(session);

    while (!cn_session_round_done(session) && !is_enough(alone)) {
        cn_err err;

        if (atomic_load(alone->config->stop))
            return CN_ECANCELED;
        err = rest(alone);
        if (err)
            return err;
        err = do_step(alone);
        if (err == CN_EDIVERGED)
            cn_log(
                CN_LOG_ERROR, "train",
                "round %u, step %u: training diverged; the checkpoint of the last good step that "
                "was saved is kept (a lower learning_rate helps where the loss had grown, "
                "train.freeze where a tensor began with such numbers)",
                held->round, held->step + 1);
        if (!err)
            err = cn_session_save(session, SAVE_MS);
        if (err)
            return err;
    }
    return CN_OK;
}

static void report(struct alone *alone, double train_loss, double step_ms)
{
    struct cn_alone_report results = {
        .round = cn_session_held(alone->session)->round,
        .train_loss = train_loss,
        .scores = *cn_session_scores(alone->session),
        .step_ms = step_ms,
    };

    tend(alone);
    results.energy_j = alone->care.round_j;
    alone->config->report(alone->config->context, &results);
}

static cn_err do_round(struct alone *alone)
{
    struct cn_session *session = alone->session;
    const struct cn_checkpoint *held = cn_session_held(session);
    uint64_t begun_us;
    uint32_t first_step = 0;
    struct cn_round_order order = {
        .round = held->round + 1,
        .steps = alone->config->settings->job.local_steps,
    };
    double steps, train_loss;
    cn_err err;

    cn_onnx_file_forget(alone->config->model);
    err = rest(alone); // no round begins during a pause
    if (err)
        return err;
    alone->paused_us = 0;
    begun_us = cn_platform_now_us();
    if (held->phase == CN_PHASE_TRAIN)
        first_step = held->step;
    else if ((err = cn_session_begin(session, &order)))
        return err;
    err = train_round(alone);
    if (err || !cn_session_round_done(session))
        return err;
    steps = held->step > first_step ? (double)(held->step - first_step) : 1;
    steps = (double)(cn_platform_now_us() - begun_us - alone->paused_us) / 1000 / steps;
    train_loss = held->train_loss / (double)(held->samples ? held->samples : 1);
    err = cn_session_snapshot(session);
    if (!err)
        err = cn_session_adopt(session, alone->collective, held->version + 1);
    if (err)
        return err;
    report(alone, train_loss, steps);
    return cn_session_save(session, 0);
}

// Decides by the version that was measured last. A restart decides again, with the same result.
static bool should_stop(struct alone *alone)
{
    const struct cn_checkpoint *held = cn_session_held(alone->session);
    const struct cn_job *job = &alone->config->settings->job;

    if (held->held_out_count == 0)
        return false;
    cn_alone_best_note(alone->session, &alone->best);
    if (job->loss == CN_LOSS_CROSS_ENTROPY && job->target_accuracy > 0 &&
        (double)held->held_out_correct / (double)held->held_out_count >= job->target_accuracy) {
        cn_log(CN_LOG_INFO, "train", "round %u reached stop.target_accuracy", held->version);
        return true;
    }
    if (cn_job_reaches(job, cn_alone_value(alone->session))) {
        cn_log(CN_LOG_INFO, "train", "round %u reached stop.target", held->version);
        return true;
    }
    if (!job->patience || held->version < alone->best.version + job->patience)
        return false;
    cn_log(CN_LOG_INFO, "train", "no round was better for %u rounds (stop.patience)",
           job->patience);
    return true;
}

static cn_err write_piece(void *context, const void *piece, size_t size)
{
    return cn_store_writer_put(context, piece, size);
}

static cn_err write_safetensors(const struct alone *alone)
{
    struct cn_trainer *trainer = cn_session_trainer(alone->session);
    struct cn_store_writer writer;
    float *weights;
    cn_err err = cn_trainer_share_weights(trainer, &weights), returned;

    if (err)
        return err;
    err = cn_store_writer_begin(alone->config->store, SAFETENSORS_FILE, &writer);
    if (!err) {
        err = cn_export_safetensors_pieces(cn_session_layout(alone->session), weights, write_piece,
                                           &writer);
        err = cn_store_writer_end(&writer, err);
    }
    returned = cn_trainer_return_weights(trainer);
    return err ? err : returned;
}

// Logs why a repeated command finds nothing to train.
static void say_nothing_left(const struct alone *alone)
{
    uint32_t rounds = alone->config->settings->job.rounds;
    uint32_t version = cn_session_held(alone->session)->version;

    if (version >= rounds)
        cn_log(CN_LOG_INFO, "train",
               "rounds.count is %u and version %u was trained before: nothing is left to train; a "
               "larger count continues, --anew starts over",
               rounds, version);
    else
        cn_log(CN_LOG_INFO, "train",
               "%s at version %u of %u: nothing is left to train; --anew starts over",
               is_enough(alone) ? "--steps is reached" : "a rule of stop holds", version, rounds);
}

static cn_err run_rounds(struct alone *alone)
{
    const struct cn_job *job = &alone->config->settings->job;
    const struct cn_checkpoint *held = cn_session_held(alone->session);
    cn_err err = CN_OK;
    bool trained = false;

    if (held->phase == CN_PHASE_EMPTY) {
        cn_alone_best_begin(alone->session);
        err = cn_session_adopt(alone->session, alone->collective, 0);
        if (!err)
            err = cn_session_save(alone->session, 0);
    }
    cn_alone_best_load(alone->session, &alone->best);
    // should_stop comes first: the last version may be the best, too.
    while (!err && !should_stop(alone) && held->version < job->rounds && !is_enough(alone)) {
        trained = true;
        err = do_round(alone);
    }
    if (!err && !trained)
        say_nothing_left(alone);
    if (err == CN_ECANCELED) {
        err = cn_session_save(alone->session, 0);
        return err ? err : CN_ECANCELED;
    }
    if (!err && held->phase == CN_PHASE_TRAIN) // --steps ended within a round
        err = cn_session_save(alone->session, 0);
    if (!err)
        err = write_safetensors(alone);
    if (!err && alone->config->at_end)
        err = alone->config->at_end(alone->config->context, alone->session);
    return err;
}

// Logs what opening the session found although it succeeded, such as a damaged slot.
static void tell(struct cn_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++)
        cn_log(CN_LOG_WARN, "train", "%s", diag->lines[i]);
    cn_diag_init(diag);
}

static cn_err run_session(struct alone *alone, struct cn_diag *diag)
{
    cn_err err = cn_alone_begin(alone->config, diag, &alone->session);

    if (!err) {
        tell(diag);
        alone->status.run = cn_session_get_config(alone->session)->run;
        if (alone->config->at_start)
            alone->config->at_start(alone->config->context, alone->session);
        err = run_rounds(alone);
        if (alone->config->best)
            *alone->config->best = alone->best;
        alone->status.progress.ended = err == CN_OK && !is_enough(alone);
        tend(alone);
        write_status(alone);
    }
    cn_session_close(alone->session);
    return err;
}

cn_err cn_alone_run(const struct cn_alone_config *config, struct cn_diag *diag)
{
    struct cn_collective_config solo = {.view = {.epoch = 1, .size = 1}};
    struct alone *alone = calloc(1, sizeof(*alone));
    uint32_t lost;
    cn_err err;

    if (!alone)
        return CN_ENOMEM;
    alone->config = config;
    alone->status = (struct cn_status_file){
        .settings = config->settings, .care = &alone->care, .job = &config->settings->job};
    err = cn_upkeep_init(&alone->care, config->settings, config->store, config->sysroot);
    if (!err)
        err = cn_collective_solo.open(&solo, &alone->collective, &lost);
    if (!err)
        err = run_session(alone, diag);
    cn_upkeep_deinit(&alone->care);
    free(alone);
    return err;
}
