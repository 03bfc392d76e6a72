#include "runtime/round/session/session_private.h"

#define VALUES 4096 // values that are written to the disk at a time

// The trainer's rows while they are shown to the host.
struct shown {
    struct cn_trainer *trainer;
    size_t total;
    float *views[CN_TRAINER_ROWS];
    uint32_t parts;                            // parts of the state, as bits
    enum cn_trainer_row row_of[CN_PART_COUNT]; // row of each part
};

bool cn_session_is_alone(const struct cn_session *session)
{
    return session->config.alone;
}

static cn_err bring(void *context, enum cn_checkpoint_part part, cn_checkpoint_put *put, void *to)
{
    const struct shown *shown = context;
    enum cn_trainer_row row = shown->row_of[part];
    float values[VALUES];

    for (size_t first = 0, count; first < shown->total; first += count) {
        count = shown->total - first < VALUES ? shown->total - first : VALUES;
        cn_trainer_get_part(shown->trainer, row, shown->views[row], first, count, values);
        put(to, values, count);
    }
    return CN_OK;
}

static void take(void *context, enum cn_checkpoint_part part, size_t first, size_t count,
                 const float *values)
{
    const struct shown *shown = context;
    enum cn_trainer_row row = shown->row_of[part];

    cn_trainer_put_part(shown->trainer, row, values, first, count, shown->views[row]);
}

static cn_err hide(struct shown *shown)
{
    cn_err err = CN_OK;

    for (int row = 0; row < CN_TRAINER_ROWS; row++)
        if (shown->views[row]) {
            cn_err hidden = cn_trainer_hide_row(shown->trainer, (enum cn_trainer_row)row);

            err = err ? err : hidden;
        }
    return err;
}

static cn_err show_part(struct shown *shown, enum cn_checkpoint_part part, enum cn_trainer_row row)
{
    cn_err err;

    if (!cn_trainer_has_row(shown->trainer, row))
        return CN_OK;
    err = cn_trainer_show_row(shown->trainer, row, &shown->views[row]);
    if (err)
        return err;
    shown->row_of[part] = row;
    shown->parts |= 1u << part;
    return CN_OK;
}

// Between rounds the weights are the base.
static cn_err show(struct cn_session *session, struct shown *shown)
{
    bool trains = session->held.phase == CN_PHASE_TRAIN;
    cn_err err;

    *shown = (struct shown){.trainer = session->trainer, .total = session->layout->total};
    if (session->held.phase == CN_PHASE_EMPTY)
        return CN_OK;
    err = show_part(shown, trains ? CN_PART_WEIGHTS : CN_PART_BASE, CN_TRAINER_WEIGHTS);
    if (!err && trains)
        err = show_part(shown, CN_PART_BASE, CN_TRAINER_BASE);
    if (!err && (trains || session->config.job->keep_optimizer)) {
        err = show_part(shown, CN_PART_OPTIMIZER, CN_TRAINER_OPTIMIZER);
        if (!err)
            err = show_part(shown, CN_PART_SECOND, CN_TRAINER_SECOND);
    }
    if (err)
        (void)hide(shown);
    return err;
}

cn_err cn_session_save_rows(struct cn_session *session, cn_err *saved)
{
    struct shown shown;
    struct cn_checkpoint_source source = {.bring = bring, .context = &shown};
    cn_err err = show(session, &shown);

    if (err)
        return err;
    source.arrays = shown.parts;
    *saved = cn_checkpoint_save_from(session->config.store, &session->held, &source);
    return hide(&shown);
}

cn_err cn_session_take_rows(struct cn_session *session, const struct cn_checkpoint_file *file)
{
    struct shown shown;
    struct cn_checkpoint_target target = {.take = take, .context = &shown};
    cn_err err = show(session, &shown), hidden;

    if (err)
        return err;
    target.arrays = shown.parts;
    err = cn_checkpoint_read_to(file, &target);
    hidden = hide(&shown);
    return err ? err : hidden;
}

static cn_err forget_optimizer(struct cn_session *session)
{
    cn_err err = cn_trainer_set_optimizer(session->trainer, NULL);

    if (!err && cn_trainer_has_second(session->trainer))
        err = cn_trainer_set_second(session->trainer, NULL);
    return err;
}

// Makes the trainer's weights the base that the proximal term pulls towards.
static cn_err base_is_weights(struct cn_session *session)
{
    float *weights;
    cn_err err, returned;

    if (!cn_trainer_has_row(session->trainer, CN_TRAINER_BASE))
        return CN_OK;
    err = cn_trainer_share_weights(session->trainer, &weights);
    if (err)
        return err;
    err = cn_trainer_set_base(session->trainer, weights);
    returned = cn_trainer_return_weights(session->trainer);
    return err ? err : returned;
}

cn_err cn_session_resume_trainer(struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    bool begins = held->phase == CN_PHASE_TRAIN && held->step == 0;
    cn_err err = cn_trainer_discard(session->trainer);

    if (!err && begins && !session->config.job->keep_optimizer)
        err = forget_optimizer(session);
    if (!err && (begins || held->phase == CN_PHASE_BASE))
        err = base_is_weights(session);
    if (err || held->phase == CN_PHASE_EMPTY)
        return err;
    cn_trainer_set_step(session->trainer, cn_session_steps_before(session), held->updates);
    cn_trainer_set_loss_scale(session->trainer, held->loss_scale);
    return CN_OK;
}
