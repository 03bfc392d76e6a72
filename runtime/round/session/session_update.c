#include "runtime/round/session/session_chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/residual.h"
#include "runtime/update/tensor_rules.h"

// --- the order ---

// Returns the density of the first rounds, in which more is sent: 25 %, 10 %, 4 % and so on, down
// to the job's density.
static double warm_density(const struct cn_job *job, uint32_t round)
{
    double density = 0.25;

    for (uint32_t i = 1; i < round && density > job->up.density; i++)
        density /= 2.5;
    return round <= job->warm_up && density > job->up.density ? density : job->up.density;
}

// Returns the largest size of an update by the profile and the bytes that are left of the day;
// UINT64_MAX for no limit.
static uint64_t most_bytes(const struct cn_link_path_stats *link, uint64_t round_bytes)
{
    uint64_t most = round_bytes ? round_bytes : UINT64_MAX;

    return link->update_max && link->update_max < most ? link->update_max : most;
}

static const struct cn_rate_spectrum *spectrum_of(const struct cn_session *session,
                                                  struct cn_rate_spectrum *guess)
{
    if (session->measured.spectrum)
        return session->measured.spectrum;
    cn_rate_guess(session->layout, guess);
    return guess;
}

static void plan_auto(const struct cn_session *session, const struct cn_link_path_stats *link,
                      uint64_t remaining_ms, struct cn_round_order *order)
{
    const struct cn_job *job = session->config.job;
    struct cn_rate_situation situation = {
        .link = *link,
        .remaining_s = (double)remaining_ms / 1000,
        .step_s = session->measured.step_s,
        .steps = job->local_steps,
        .steps_most = cn_job_most_steps(job),
        .bytes_most = most_bytes(link, session->config.settings->round_bytes),
        .factor = session->held.guard.factor,
    };
    struct cn_rate_spectrum guess;
    struct cn_rate_choice choice;

    cn_rate_plan(spectrum_of(session, &guess), &situation, &choice);
    order->rule = choice.rule;
    order->steps = choice.steps;
    cn_log(CN_LOG_INFO, "session",
           "round %u: %s, density %.2f %%, %u bits: about %" PRIu64 " of %" PRIu64
           " bytes, quality %.2f; %u "
           "steps (%.0f kbit/s up, %.0f s left)",
           order->round, cn_update_mode_name(choice.rule.mode), 100 * choice.rule.density,
           choice.rule.value_bits, choice.bytes, cn_rate_budget(&situation), choice.quality,
           choice.steps, link->up_bps / 1000, situation.remaining_s);
}

// Skips the update if a fixed rule would take more than the day has left. The whole change then
// waits.
static void skip_if_too_large(const struct cn_session *session,
                              const struct cn_link_path_stats *link, struct cn_round_order *order)
{
    struct cn_rate_spectrum guess;
    struct cn_rate_choice choice;

    if (!link->update_max)
        return;
    cn_rate_judge(spectrum_of(session, &guess), &order->rule, &choice);
    if (choice.bytes <= link->update_max)
        return;
    order->rule = (struct cn_update_rule){.mode = CN_UPDATE_SKIP};
    cn_log(CN_LOG_INFO, "session",
           "round %u: an update of about %" PRIu64 " bytes is more than the %" PRIu64
           " that the profile allows; "
           "it waits",
           order->round, choice.bytes, link->update_max);
}

void cn_session_plan(const struct cn_session *session, uint32_t round,
                     const struct cn_link_path_stats *link, uint64_t remaining_ms,
                     struct cn_round_order *order)
{
    const struct cn_job *job = session->config.job;

    *order = (struct cn_round_order){.round = round, .steps = job->local_steps, .rule = job->up};
    if (job->up.mode == CN_UPDATE_AUTO) {
        plan_auto(session, link, remaining_ms, order);
        return;
    }
    order->rule.density = warm_density(job, round);
    skip_if_too_large(session, link, order);
}

// Returns whether an order, which may be that of another member, can be carried out.
static bool is_possible(const struct cn_session *session, const struct cn_round_order *order)
{
    const struct cn_job *job = session->config.job;
    uint32_t most = cn_job_most_steps(job);

    return order->steps > 0 && order->steps <= most && cn_update_rule_is_valid(&order->rule) &&
           order->newest.round <= order->round;
}

cn_err cn_session_allocate_optimizer(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err = cn_session_allocate(&held->optimizer, held->total);

    if (!err && cn_trainer_has_second(session->trainer))
        err = cn_session_allocate(&held->second, held->total);
    return err;
}

void cn_session_release_optimizer(struct cn_session *session)
{
    cn_scratch_free(session->held.optimizer);
    cn_scratch_free(session->held.second);
    session->held.optimizer = session->held.second = NULL;
    session->held.updates = 0;
    session->sharing.let_go = false;
}

cn_err cn_session_keep_optimizer(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err;

    if (cn_session_divides_state(session))
        return CN_OK; // the weights were gathered, or are not divided yet
    err = cn_trainer_get_optimizer(session->trainer, held->optimizer);

    if (err || !cn_trainer_has_second(session->trainer))
        return err;
    held->updates = cn_trainer_updates(session->trainer);
    return cn_trainer_get_second(session->trainer, held->second);
}

// Allocates the rows of a round. A board alone has them in the trainer. Zeros of a divided
// optimizer state need no memory.
static cn_err allocate_rows(struct cn_session *session)
{
    cn_err err = CN_OK;

    if (cn_session_is_alone(session))
        return CN_OK;
    if (!cn_session_divides_state(session))
        err = cn_session_allocate_optimizer(session);
    return err ? err : cn_session_allocate_residual(session);
}

cn_err cn_session_begin(struct cn_session *session, const struct cn_round_order *order)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err;

    if (!is_possible(session, order) || !cn_session_has_control(session) ||
        cn_session_has_stale_parts(session))
        return CN_EFORMAT;
    cn_session_begin_control(session, order->round, order->steps);
    cn_session_forget_parts(session);
    err = cn_session_recall_rows(session, CN_ROWS_ALL);
    if (err)
        return err;
    cn_session_note_newest(session, &order->newest);
    if (!session->config.job->keep_optimizer)
        cn_session_release_optimizer(session);
    err = cn_session_take_files(session, order->round);
    if (!err)
        err = allocate_rows(session);
    if (err)
        return err;
    held->phase = CN_PHASE_TRAIN;
    held->round = order->round;
    held->steps = order->steps;
    held->rule = order->rule;
    held->step = 0;
    cn_session_mark_synced(session);
    held->samples = 0;
    held->train_loss = 0;
    cn_session_decay_residual(session);
    if (!cn_session_is_alone(session))
        err = cn_session_first_weights(session);
    if (!err)
        err = cn_session_load_trainer(session);
    if (!err && session->config.job->up.mode == CN_UPDATE_AUTO)
        err = cn_session_save(session, 0);
    if (err)
        return err;
    cn_session_let_go_first(session);
    cn_session_let_rows_go(session);
    return CN_OK;
}

// --- the frame ---

cn_err cn_session_change(struct cn_session *session, float *to)
{
    const struct cn_checkpoint *held = &session->held;
    const struct cn_layout *layout = session->layout;
    cn_err err = cn_session_get_weights(session, to);

    if (!err)
        err = cn_session_subtract_base(session, to);
    if (err)
        return err;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (tensor->local)
            cn_row_subtract(&held->residual, tensor->offset, tensor->count, to + tensor->offset);
    }
    return CN_OK;
}

// Measures the change, for the next choice of a rule.
static void measure_spectrum(struct cn_session *session, const float *change)
{
    if (session->config.job->up.mode != CN_UPDATE_AUTO)
        return;
    if (!session->measured.spectrum)
        session->measured.spectrum = calloc(1, sizeof(*session->measured.spectrum));
    if (session->measured.spectrum) // without it the next choice is a guess
        cn_rate_measure(session->layout, change, session->measured.spectrum);
}

// Turns the held weights into the values to encode: change + residual.
static cn_err weights_to_change(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err = cn_session_recall_rows(session, CN_ROWS_RESIDUAL);

    if (!err)
        err = cn_session_allocate(&held->weights, held->total);
    if (!err)
        err = cn_session_change(session, held->weights);
    if (!err)
        cn_row_add(&held->residual, 0, held->total, held->weights);
    return err;
}

// Encodes rows that are stored in float32. The residual's successors take the memory of the
// residual and the weights.
static cn_err encode_rows(struct cn_session *session, const struct cn_update_header *header,
                          struct cn_buffer *frame)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err = cn_residual_encode(header, session->layout, held->weights, NULL,
                                    held->residual.data, frame);

    if (err)
        return err;
    measure_spectrum(session, held->weights);
    held->change = (struct cn_row){.data = held->weights};
    held->weights = NULL;
    return CN_OK;
}

// Encodes rows that are stored in bfloat16: they are widened to float32 while encoding.
static cn_err encode_halves(struct cn_session *session, const struct cn_update_header *header,
                            struct cn_buffer *frame)
{
    struct cn_checkpoint *held = &session->held;
    float *next = cn_scratch_allocate(held->total * sizeof(*next));
    cn_err err = next ? CN_OK : CN_ENOMEM;

    if (!err)
        err = cn_residual_encode(header, session->layout, held->weights, NULL, next, frame);
    if (!err)
        cn_row_write(&held->residual, 0, held->total, next);
    cn_scratch_free(next);
    if (!err)
        err = cn_row_allocate(&held->change, held->total, true);
    if (err)
        return err;
    measure_spectrum(session, held->weights);
    cn_row_write(&held->change, 0, held->total, held->weights);
    return CN_OK;
}

void cn_session_update_header(const struct cn_session *session, struct cn_update_header *header)
{
    const struct cn_checkpoint *held = &session->held;
    uint64_t samples = held->samples + session->steps.unsaved_counts.samples;

    *header = (struct cn_update_header){
        .run = held->run,
        .round = held->round,
        .weight = samples < CN_UPDATE_WEIGHT_MAX ? samples : CN_UPDATE_WEIGHT_MAX,
        .rule = held->rule,
        .leave_statistics = session->config.job->statistics == CN_STATISTICS_LOCAL,
        .leave_staying = cn_local_tensors_stay(session->layout),
        .small_signs = cn_tensor_rules_sign(session->layout),
    };
    snprintf(header->group, sizeof(header->group), "%s", session->config.group);
    memcpy(header->base, held->base_digest, CN_DIGEST_SIZE);
}

cn_err cn_session_encode(struct cn_session *session, struct cn_buffer *frame)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_update_header header;
    cn_err err;

    cn_session_update_header(session, &header);
    err = weights_to_change(session);
    if (!err)
        err = held->residual.half ? encode_halves(session, &header, frame)
                                  : encode_rows(session, &header, frame);
    if (!err) {
        held->next_residual = held->residual;
        held->residual = (struct cn_row){0};
        cn_session_change_row(session, CN_ROWS_RESIDUAL);
        return CN_OK;
    }
    if (err == CN_EDIVERGED || err == CN_ERANGE)
        return err; // no frame can hold this change; no row was written
    cn_log(CN_LOG_ERROR, "session",
           "round %u: the update cannot be made: %s; training continues from the stored state",
           held->round, cn_err_text(err));
    return CN_EWEDGED; // some rows are already changed, others not
}

cn_err cn_session_keep_momentum(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err = cn_session_keep_optimizer(session);

    if (err || held->rule.mode != CN_UPDATE_TOPK)
        return err;
    // Where left and change differ, the value was sent.
    for (size_t i = 0; i < held->total; i++) {
        float change, left;

        cn_row_read(&held->change, i, 1, &change);
        cn_row_read(&held->next_residual, i, 1, &left);
        held->optimizer[i] = left == change ? held->optimizer[i] : 0;
    }
    return CN_OK;
}
