// session_residual.c - the residual: what a round did not send. It is kept when an update is
// decided or abandoned, decays while it waits, and is dropped when another part of the group has
// sent it.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"

static void scale_row(struct cn_row *row, size_t first, size_t count, float factor)
{
    for (size_t i = first; i < first + count; i++) {
        float value;

        cn_row_read(row, i, 1, &value);
        value *= factor;
        cn_row_write(row, i, 1, &value);
    }
}

// Returns the versions since the residual changed, if they are so many that it decays; else 0.
static uint32_t stale_versions(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    uint32_t limit = session->config.job->stale_rounds;
    uint32_t stale =
        held->version > held->residual_version ? held->version - held->residual_version : 0;

    return limit && stale > limit ? stale : 0;
}

bool cn_session_has_stale_parts(const struct cn_session *session)
{
    return session->held.waiting.set && stale_versions(session);
}

cn_err cn_session_gather_stale(struct cn_session *session, struct cn_collective *collective)
{
    return stale_versions(session) ? cn_session_gather_waiting(session, collective) : CN_OK;
}

void cn_session_decay_residual(struct cn_session *session)
{
    const struct cn_job *job = session->config.job;
    struct cn_checkpoint *held = &session->held;
    uint32_t stale = stale_versions(session);
    float kept = 1;

    if (!stale)
        return;
    for (uint32_t i = job->stale_rounds; i < stale && kept > 0; i++)
        kept *= (float)job->stale_decay;
    for (size_t t = 0; t < session->layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &session->layout->tensors[t];

        if (!tensor->local)
            scale_row(&held->residual, tensor->offset, tensor->count, kept);
    }
    cn_session_change_row(session, CN_ROWS_RESIDUAL);
    held->residual_version = held->version;
    cn_log(CN_LOG_INFO, "session", "the residual is %u versions old: %.0f %% of it is kept", stale,
           100 * (double)kept);
}

// Empties the residual of changes that wait to be sent. Local tensors stay as they are.
static void forget_waiting(struct cn_session *session)
{
    const struct cn_layout *layout = session->layout;
    struct cn_row *residual = &session->held.residual;

    session->held.waiting = (struct cn_waiting_set){0}; // no tensor is local where this is a set
    for (size_t t = 0; residual->data && t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (!tensor->local)
            memset((uint8_t *)residual->data + tensor->offset * cn_row_width(residual), 0,
                   tensor->count * cn_row_width(residual));
    }
    session->held.residual_version = session->held.version;
    cn_session_change_row(session, CN_ROWS_RESIDUAL);
}

void cn_session_follow_rollback(struct cn_session *session,
                                const struct cn_session_version *version)
{
    const struct cn_checkpoint *held = &session->held;

    if (version->number < version->forget || held->residual_version >= version->forget)
        return;
    if (held->residual.data || held->waiting.set)
        cn_log(CN_LOG_INFO, "session",
               "version %u went back to an earlier one: what waited here is forgotten",
               version->forget);
    forget_waiting(session);
    cn_session_release_optimizer(session); // its moments belong to versions that were given up
}

bool cn_session_has_local(const struct cn_session *session)
{
    for (size_t t = 0; t < session->layout->tensor_count; t++)
        if (session->layout->tensors[t].local)
            return true;
    return false;
}

void cn_session_localize(const struct cn_session *session, float *weights)
{
    const struct cn_layout *layout = session->layout;

    if (!session->held.residual.data)
        return;
    // Local tensors are never sent, so their whole difference from the version is in the residual.
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (tensor->local)
            cn_row_add(&session->held.residual, tensor->offset, tensor->count,
                       weights + tensor->offset);
    }
}

cn_err cn_session_allocate_residual(struct cn_session *session)
{
    if (session->held.waiting.set)
        return CN_OK;
    return cn_row_allocate(&session->held.residual, session->held.total,
                           session->config.job->options.residual == CN_RESIDUAL_BF16);
}

void cn_session_note_newest(struct cn_session *session, const struct cn_decision *newest)
{
    struct cn_checkpoint *held = &session->held;
    bool own = memcmp(newest->digest, held->frame_digest, CN_DIGEST_SIZE) == 0;

    if (newest->round <= held->counted.round)
        return;
    held->counted = (struct cn_counted){.round = newest->round, .own = own};
    memcpy(held->counted.digest, newest->digest, CN_DIGEST_SIZE);
    if (own || !held->round) // no round yet: nothing can wait
        return;
    cn_log(CN_LOG_WARN, "session",
           "another part of the group has delivered round %u: the changes that waited here are "
           "part of it",
           newest->round);
    forget_waiting(session);
}

// Records the update that counts. A decision may be about a later round than the held one.
static void note_counted(struct cn_session *session, const struct cn_decision *decision,
                         enum cn_outcome outcome)
{
    static const uint8_t nothing[CN_DIGEST_SIZE];
    struct cn_counted *counted = &session->held.counted;

    if (outcome == CN_OUTCOME_NOTHING || memcmp(decision->digest, nothing, CN_DIGEST_SIZE) == 0)
        return;
    *counted = (struct cn_counted){.round = decision->round, .own = outcome == CN_OUTCOME_COUNTED};
    memcpy(counted->digest, decision->digest, CN_DIGEST_SIZE);
}

cn_err cn_session_decide(struct cn_session *session, const struct cn_decision *decision)
{
    struct cn_checkpoint *held = &session->held;
    enum cn_outcome outcome = cn_round_outcome(decision, held->round, held->frame_digest);
    bool waits = outcome == CN_OUTCOME_NOTHING;
    struct cn_row residual = waits ? held->change : held->next_residual;
    cn_err err = outcome == CN_OUTCOME_COUNTED ? cn_session_advance_control(session) : CN_OK;

    if (err)
        return err;
    if (decision->verdict != CN_VERDICT_REJECTED)
        cn_rate_guard_add(&held->guard,
                          decision->verdict == CN_VERDICT_LATE ? -1 : decision->spare);
    if (held->waiting.set)
        held->waiting.array = waits ? CN_PART_CHANGE : CN_PART_NEXT_RESIDUAL;
    cn_row_deinit(&held->residual);
    held->residual = residual;
    held->residual_version = held->version;
    cn_row_deinit(waits ? &held->next_residual : &held->change);
    held->change = held->next_residual = (struct cn_row){0};
    cn_session_change_row(session, CN_ROWS_RESIDUAL);
    if (outcome == CN_OUTCOME_OTHER && held->rule.mode == CN_UPDATE_SKIP)
        forget_waiting(session); // this frame left out the whole change
    note_counted(session, decision, outcome);
    free(held->frame);
    held->frame = NULL;
    held->frame_size = 0;
    held->phase = CN_PHASE_BASE;
    cn_session_forget_parts(session);
    err = cn_session_save(session, 0);
    if (!err)
        cn_session_forget_waiting(session);
    return err;
}

static cn_err keep_change(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err = cn_session_allocate(&held->weights, held->total);

    if (!err)
        err = cn_session_change(session, held->weights);
    if (err)
        return err;
    cn_row_add(&held->residual, 0, held->total, held->weights);
    cn_row_write(&held->residual, 0, held->total, held->weights);
    cn_session_change_row(session, CN_ROWS_RESIDUAL);
    held->residual_version = held->version;
    return CN_OK;
}

cn_err cn_session_abandon(struct cn_session *session, const struct cn_decision *decision)
{
    struct cn_checkpoint *held = &session->held;
    enum cn_outcome outcome = CN_OUTCOME_NOTHING;
    cn_err err = cn_session_recall_rows(session, CN_ROWS_RESIDUAL);

    if (err)
        return err;
    cn_session_mark_synced(session);
    if (decision)
        outcome = cn_round_outcome(decision, held->round, held->frame_digest);
    if (outcome != CN_OUTCOME_NOTHING)
        forget_waiting(session);
    else if (decision)
        err = keep_change(session);
    if (err)
        return err;
    if (decision)
        note_counted(session, decision, outcome);
    else
        cn_session_note_given_up(session);
    held->phase = CN_PHASE_BASE;
    cn_scratch_free(held->weights);
    held->weights = NULL;
    cn_session_release_optimizer(session);
    err = cn_session_load_trainer(session);
    if (!err)
        err = cn_session_save(session, 0);
    if (err)
        return err;
    if (!decision)
        cn_session_tell_given_up(session);
    cn_session_forget_parts(session);
    return CN_OK;
}
