// session_trainer.c - opens the model and the trainer that holds it, or a part or a share of it.
#include <inttypes.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/tensor_rules.h"

// Returns the bytes of a copy of this board's part of a model; 0 without parts.
static uint64_t part_of(const struct cn_layout *whole, const struct cn_layout *own)
{
    return own == whole ? 0 : (uint64_t)own->total * sizeof(float);
}

// Where the copies of the model lie.
struct place {
    const struct cn_session *session;
    bool on_disk;
};

static uint64_t copies_of(const void *context, const struct cn_layout *whole,
                          const struct cn_layout *own)
{
    const struct place *place = context;
    bool divided = cn_session_divides_state(place->session);

    return part_of(whole, own) +
           (place->on_disk ? 0
                           : cn_session_most_copies(place->session->config.job, whole, divided));
}

// Returns what a step of the whole model takes beside copies of it.
static struct cn_trainer_need needs_of(const struct cn_trainer *trainer, uint32_t stage)
{
    struct cn_trainer_need need = cn_trainer_needs(trainer, stage);

    need.whole -= cn_trainer_plan(trainer)->copies;
    return need;
}

static cn_err open_once(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_session_config *config = &session->config;
    const struct place place = {session, cn_session_place_rows(session)};
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
        .steps = cn_job_schedule_steps(config->job),
        .seed = config->job->seed,
        .memory_limit = config->settings->memory_limit,
        .recompute = session->sharing.recompute,
        .copies = config->alone ? NULL : copies_of,
        .copies_context = &place,
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

// Opens the trainer. A part that the job wants and that does not fit, even if it computes
// activations again, gets as many micro-batches in flight as fit. "parallel: auto" takes another
// layout in place of that.
static cn_err open_trainer(struct cn_session *session, struct cn_diag *diag)
{
    struct cn_session_cut *cut = &session->cut;
    uint32_t wanted = cut->slots, before = cut->most;
    cn_err err = open_once(session, diag);

    if (err != CN_ENOMEM || !cn_session_is_cut(session) || cn_session_is_automatic(session))
        return err;
    while (err == CN_ENOMEM && cut->slots > 1) {
        cut->most = cut->slots - 1;
        cn_session_set_part(session, cut->part);
        cn_diag_init(diag);
        err = open_once(session, diag);
    }
    if (err) {
        cut->most = before;
        cn_session_set_part(session, cut->part);
    } else {
        cn_log(
            CN_LOG_WARN, "chain",
            "part %u of %u: memory.train_max has no room for %u micro-batches in flight; %u fit, "
            "and parts wait longer for messages",
            cut->part + 1, cut->at.parts, wanted, cut->slots);
    }
    return err;
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

cn_err cn_session_open_model(struct cn_session *session, struct cn_diag *diag)
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
