// session_progress.c - reports a session's progress to status, hooks and people.
#include <math.h>
#include <string.h>

#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/sum_bounds.h"

#define SLOW 1.25 // factor over the others' time from which a member counts as slow

// Returns the measures that a checkpoint keeps, for a session after a restart or with another
// board's state.
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

// Returns the measures of the base other than loss and accuracy. They are unknown after a restart.
static struct cn_measures measures(const struct cn_session *session)
{
    const struct cn_scores *scores = &session->measured.scores;

    if (!scores->rows || scores->version != session->held.version)
        return (struct cn_measures){0};
    return (struct cn_measures){
        .top5 = cn_sum_within(scores->top5, 0, 1, 0),
        .f1 = cn_sum_within(scores->f1, 0, 1, 0),
        .mae = cn_sum_within(scores->mae, 0, CN_SUM_LOSS_MOST, 0),
        .perplexity = cn_sum_within(scores->perplexity, 0, CN_SUM_LOSS_MOST, 0),
    };
}

void cn_session_fill_measured(const struct cn_session *session, struct cn_link_upload *upload)
{
    const struct cn_checkpoint *held = &session->held;
    double mean = held->samples ? held->train_loss / (double)held->samples : 0;
    bool counts = held->held_out_count && held->held_out_correct <= held->held_out_count &&
                  (double)held->held_out_count <= (double)CN_SUM_COUNT_MOST &&
                  cn_loss_can_be(session->config.job->loss, held->held_out_loss, CN_SUM_LOSS_MOST);

    if (mean > -CN_SUM_LOSS_MOST && mean < CN_SUM_LOSS_MOST)
        upload->train_loss = mean;
    if (!counts)
        return;
    upload->held_out_loss = held->held_out_loss;
    upload->held_out_correct = held->held_out_correct;
    upload->held_out_count = held->held_out_count;
    upload->measures = measures(session);
}

// Returns a rank's time per micro-batch in ms; 0 if it has not trained. *micro is the number that
// it trains.
static double micro_ms(const struct cn_session *session, uint32_t rank, uint32_t *micro)
{
    const struct cn_step_plan *plan = &session->plan;
    uint32_t place = 0;

    *micro = plan->micro;
    if (session->planning.sets) {
        while (place < plan->train.size && plan->train.ranks[place] != rank)
            place++;
        *micro = place < plan->train.size ? session->planning.micro[place] : 0;
        if (place < plan->train.size && session->planning.balance.steps)
            return session->planning.balance.ms[place];
    }
    return *micro ? session->measured.split.member_ms[rank] / *micro : 0;
}

// Finds the member that computes clearly slower than the others, whether they wait for it or have
// taken over some of its work.
static void tell_slowest(const struct cn_session *session, struct cn_progress *progress)
{
    const struct cn_reducer *reducer = session->reducer;
    uint32_t micro, others = 0, slowest = 0;
    double sum = 0;

    progress->slowest = UINT32_MAX;
    for (uint32_t r = 0; reducer && r < reducer->size; r++) {
        double ms = micro_ms(session, r, &micro);

        sum += ms;
        others += ms > 0;
        if (ms <= progress->slowest_ms)
            continue;
        slowest = r;
        progress->slowest_ms = ms;
        progress->slowest_micro = micro;
    }
    if (others < 2)
        return;
    progress->usual_ms = (sum - progress->slowest_ms) / (others - 1);
    progress->total_micro =
        session->planning.sets ? session->plan.total : session->plan.micro * others;
    progress->slowest_why = session->measured.split.slow[slowest];
    // The parts of a chain may differ in work; cn_chain_progress tells the slowest.
    if (session->plan.chain.parts <= 1 && progress->slowest_ms > SLOW * progress->usual_ms)
        progress->slowest = reducer->members[slowest];
}

// Returns the bubble of parts whose passes take these times in a step, without any other waiting.
static double bubble_of(const double *part_ms, uint32_t parts, uint32_t micro)
{
    double sum = 0;

    for (uint32_t p = 0; p < parts; p++)
        sum += part_ms[p];
    return sum > 0 ? 1 - sum / (parts * cn_session_pipeline_ms(part_ms, parts, micro)) : 0;
}

// The bubble by formula is that of parts of equal work: P - 1 passes of each (micro-batches + P -
// 1) are lost to filling and draining.
static void tell_chain(const struct cn_session *session, struct cn_chain_progress *chain)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_step_split *split = &session->measured.split;
    const struct cn_reducer *reducer = session->reducer;
    double busy = 0, part_ms[CN_CUT_PARTS_MAX] = {0};

    *chain = (struct cn_chain_progress){0};
    if (place->parts <= 1 || place->idle || !reducer)
        return;
    chain->parts = place->parts;
    chain->part = place->part;
    chain->chain = place->number;
    chain->chains = place->chains;
    chain->shard = place->shard;
    chain->shards = place->shards;
    chain->micro = session->plan.micro;
    chain->slots = cn_session_slots_used(session);
    chain->bubble = (place->parts - 1.0) / (chain->micro + place->parts - 1.0);
    for (uint32_t p = 0; p + 1 < place->parts; p++)
        chain->bytes[p] = (uint64_t)session->cut.words[p] * sizeof(float) * chain->micro *
                          session->config.job->batch;
    for (uint32_t i = 0; i < place->all.size; i++) {
        double ms = split->member_ms[place->ranks[i]];

        busy += ms / place->all.size;
        part_ms[i / place->chains] += ms / place->chains;
        if (ms <= chain->slowest_ms)
            continue;
        chain->slowest_ms = ms;
        chain->slowest_part = i / place->chains;
        chain->slowest = reducer->members[place->ranks[i]];
    }
    chain->bubble_parts = bubble_of(part_ms, place->parts, chain->micro);
    if (split->voted_ms > 0)
        chain->bubble_measured = fmax(1 - busy / split->voted_ms, 0);
    if (session->planning.sets)
        memcpy(chain->slow_link, session->planning.sets->slow_link, sizeof(chain->slow_link));
}

void cn_session_fill_progress(struct cn_session *session, struct cn_progress *progress)
{
    const struct cn_checkpoint *held = &session->held;
    const struct cn_job *job = session->config.job;

    if (held->frame_size)
        session->measured.update_bytes = held->frame_size;
    progress->phase = held->phase;
    progress->run = held->run;
    progress->round = held->round;
    memcpy(progress->base_digest, held->base_digest, CN_DIGEST_SIZE);
    progress->step = cn_session_position(session);
    progress->steps = held->steps;
    progress->version = held->version;
    progress->lineage = session->held.lineage;
    progress->resets = held->resets;
    progress->scores =
        session->measured.scores.version == held->version && session->measured.scores.rows
            ? session->measured.scores
            : kept_scores(session);
    progress->step_ms = session->chain.waits ? 0 : session->measured.step_s * 1000;
    progress->split = session->measured.split;
    tell_chain(session, &progress->chain);
    memcpy(progress->hindered, session->chain.why, sizeof(progress->hindered));
    memcpy(progress->needs, session->chain.needs, sizeof(progress->needs));
    tell_slowest(session, progress);
    progress->looks_on =
        session->planning.sets && held->phase == CN_PHASE_TRAIN && !session->plan.trains;
    progress->samples_per_s =
        progress->step_ms > 0 && !progress->looks_on
            ? job->batch * (double)session->plan.micro / session->measured.step_s
            : 0;
    progress->samples = session->data.set ? cn_dataset_count(session->data.set, CN_SPLIT_TRAIN) : 0;
    memcpy(progress->train, session->plan.names, sizeof(progress->train));
    if (session->planning.sets)
        memcpy(progress->layout, session->planning.sets->layout.why, sizeof(progress->layout));
    progress->memory = cn_trainer_memory(session->trainer);
    progress->copies_memory = cn_trainer_plan(session->trainer)->copies;
    progress->update_bytes = session->measured.update_bytes;
    progress->dense_bytes =
        session->measured.update_bytes ? session->layout->total * sizeof(float) : 0;
}
