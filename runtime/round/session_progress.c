// session_progress.c - what a session says of itself to status, hooks and people.
#include <math.h>

#include "runtime/round/session_reduce.h"

#define SLOW 1.25 // times what the others take

// After a restart, or taken from another board: the measures that a checkpoint keeps.
static struct cn_scores kept_scores(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    enum cn_loss loss = session->config.job->loss;
    bool hits = loss == CN_LOSS_CROSS_ENTROPY || loss == CN_LOSS_BINARY_ENTROPY;
    double rows = held->held_out_count ? (double)held->held_out_count : NAN;

    return (struct cn_scores){
        .version = held->version,
        .rows = held->held_out_count,
        .loss = held->held_out_loss / rows,
        .accuracy = hits ? (double)held->held_out_correct / rows : NAN,
        .top5 = NAN,
        .f1 = NAN,
        .mae = NAN,
        .perplexity = NAN,
    };
}

// The member that the others wait for, if one computes clearly longer.
static void tell_slowest(const struct cn_session *session, struct cn_progress *progress)
{
    const struct cn_reducer *reducer = session->reducer;
    const double *ms = session->split.member_ms;
    uint32_t slowest = 0;
    double sum = 0;

    progress->slowest = UINT32_MAX;
    if (!reducer)
        return;
    for (uint32_t r = 0; r < reducer->size; r++) {
        sum += ms[r];
        slowest = ms[r] > ms[slowest] ? r : slowest;
    }
    progress->slowest_ms = ms[slowest];
    progress->usual_ms = (sum - ms[slowest]) / (reducer->size - 1);
    if (progress->slowest_ms > SLOW * progress->usual_ms)
        progress->slowest = reducer->members[slowest];
}

void cn_session_tell(struct cn_session *session, struct cn_progress *progress)
{
    const struct cn_checkpoint *held = &session->held;
    const struct cn_job *job = session->config.job;

    if (held->frame_size)
        session->update_bytes = held->frame_size;
    progress->phase = held->phase;
    progress->round = held->round;
    progress->step = held->step;
    progress->steps = held->steps;
    progress->version = held->version;
    progress->resets = held->resets;
    progress->scores = session->scores.version == held->version && session->scores.rows
                           ? session->scores
                           : kept_scores(session);
    progress->step_ms = session->step_s * 1000;
    progress->split = session->split;
    tell_slowest(session, progress);
    progress->samples_per_s =
        session->step_s > 0 ? job->batch * (double)job->accumulate / session->step_s : 0;
    progress->memory = cn_trainer_memory(session->trainer);
    progress->update_bytes = session->update_bytes;
    progress->dense_bytes = session->update_bytes ? session->layout->total * sizeof(float) : 0;
}
