#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_private.h"
#include "runtime/round/session/session_trace.h"
#include "runtime/round/session/sum_bounds.h"

// Returns the number of a step's first batch. It follows from the state alone, so a repeated step
// draws the same batches: of own samples by round and step, of shared samples by what the group has
// drawn.
static uint64_t first_batch(const struct cn_session *session)
{
    const struct cn_settings *settings = session->config.settings;
    const struct cn_step_plan *plan = &session->plan;
    uint64_t drawn = session->held.cursor + session->steps.unsaved_counts.cursor;
    // These members have the same files.
    uint64_t members = settings->gpu_count ? settings->gpu_count : 1;
    uint64_t place = settings->gpu_place;

    if (cn_session_takes_turns(session))
        return cn_session_first_of_turn(session);
    if (session->config.job->parallel.scope == CN_SCOPE_SHARED)
        return drawn + plan->before;
    if (cn_session_is_automatic(session)) // the number of micro-batches differs between steps
        return drawn * members + place * plan->total;
    if (session->config.job->parallel.balance) // leaves room for the most that a board could get
        return (cn_session_steps_before(session) * members + place) * plan->total;
    return (cn_session_steps_before(session) * members + place) * plan->micro;
}

// Trains the micro-batches. The last one reports finished gradients to the sink, if any.
static cn_err accumulate(struct cn_session *session, const struct cn_trainer_sink *sink,
                         struct cn_metrics *metrics)
{
    const struct cn_job *job = session->config.job;
    uint64_t index = first_batch(session);
    cn_err err = CN_OK;

    for (uint32_t i = 0; session->plan.trains && i < session->plan.micro && !err; i++) {
        const struct cn_batch *batch = cn_reader_take(session->data.reader, index + i);

        cn_trainer_draw(session->trainer,
                        ((index + i) * CN_GROUP_MAX + session->planning.seat) * job->batch);
        err = cn_trainer_accumulate_last(session->trainer, batch, metrics,
                                         i + 1 == session->plan.micro ? sink : NULL);
    }
    return err;
}

static cn_err reduce_gradients(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE,
        .how = CN_REDUCE_SUM,
        .set = session->plan.whole ? NULL : &session->plan.train,
        .count = cn_trainer_gradient_words(session->trainer),
    };
    float *gradients;
    cn_err err;

    if (!session->plan.trains)
        return CN_OK;
    err = cn_trainer_gradients(session->trainer, &gradients);
    if (err)
        return err;
    call.data = gradients;
    call.wire = session->reducer ? session->reducer->wire : CN_FLOAT32;
    return collective->ops->run(collective, &call);
}

// Says once that a step has no label that counts. The loss of such a step is 0, so a run that has
// only these looks finished.
static void tell_weightless(const struct cn_session *session)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told))
        cn_log(CN_LOG_WARN, "session",
               "round %u, step %u: no label counts, because all are ignored or of classes with "
               "weight 0: nothing is learned there, and its loss is shown as 0",
               session->held.round, session->held.step + 1);
}

// Counts a step. The sum of losses is scaled so that, divided by the samples, it gives the mean
// over the weighted rows.
static void count_step(struct cn_session *session, float samples, float loss, float weight)
{
    if (samples > 0 && !(weight > 0))
        tell_weightless(session);
    session->measured.step_loss = (double)loss / (double)(weight > 0 ? weight : 1);
    cn_session_mark_trained(session);
    session->steps.unsaved++;
    if (!session->plan.trains)
        return;
    session->steps.unsaved_counts.cursor += session->plan.total;
    session->steps.unsaved_counts.samples += (uint64_t)samples;
    session->steps.unsaved_counts.train_loss +=
        weight == samples ? (double)loss : session->measured.step_loss * (double)samples;
    if (!cn_session_is_sharded(session))
        cn_session_add_unsaved(session);
}

static void name_fault(struct cn_session *session, bool loss_is_finite)
{
    const struct cn_checkpoint *held = &session->held;
    char what[160];

    if (!cn_trainer_find_fault(session->trainer, what, sizeof(what)))
        cn_log(CN_LOG_ERROR, "session", "round %u, step %u: %s is not finite%s", held->round,
               held->step + 1, what,
               loss_is_finite ? ", though the loss is: a root, a logarithm or a quotient may be "
                                "at 0"
                              : "");
}

static void follow(double *average, double value)
{
    *average += *average > 0 ? (value - *average) / 8 : value;
}

// The votes: what the members tell each other once they hold the reduced gradients. They say
// whether the optimizer is to run, and all that it needs besides the gradients. A member that has
// the sums of the votes knows that every member has the reduced gradients. So either all survivors
// can apply the step or none can. The votes end with each rank's computing time in milliseconds,
// then each rank's slow reason.
enum vote {
    SAMPLES,
    WEIGHT,
    LOSS,
    DIVERGED,
    REFORM_REQUESTED,
    ABANDON,
    STORE,
    WHOLE,
    BUCKET,
    WINDOW,
    TRACED,
    COMPUTED
};

#define VOTES (COMPUTED + 2 * CN_GROUP_MAX)
#define BUCKET_MOST 0x1p24f // KiB
#define COMPUTED_MOST 1e9   // ms
_Static_assert(VOTES <= CN_STEP_VOTES, "the votes of a step are kept");

// Puts rank 0's choice of buckets into the votes. A bucket is a whole number of KiB, which a float
// represents exactly up to 16 GiB.
static void choose_buckets(struct cn_session *session, const struct cn_step_times *times,
                           float sums[VOTES])
{
    struct cn_bucket_choice choice =
        cn_reducer_choose(session->reducer, times, session->plan.micro);

    sums[BUCKET] = (float)(choice.bucket >> 10);
    sums[WINDOW] = (float)choice.window;
}

// Replaces sums that cannot be: a member lies or is broken. No member trains on more samples than
// its micro-batches have.
static void bound_sums(struct cn_session *session, float sums[VOTES])
{
    uint32_t size = session->reducer ? session->reducer->size : 1;
    struct cn_step_sums step = {sums[SAMPLES], sums[WEIGHT], sums[LOSS]};
    uint64_t most = (uint64_t)session->plan.total * size * session->config.job->batch;

    for (uint32_t r = 0; r < size; r++)
        sums[COMPUTED + r] = (float)cn_sum_within((double)sums[COMPUTED + r], 0, COMPUTED_MOST, 0);
    if (!session->plan.total || cn_sum_bound_step(&step, (float)most))
        return;
    if (size > 1 && session->measured.odd_round != session->held.round)
        cn_log(CN_LOG_WARN, "session",
               "round %u, step %u: the members' sums are %g samples, weight %g and loss %g, which "
               "cannot be: a member lies or is broken",
               session->held.round, session->held.step + 1, (double)sums[SAMPLES],
               (double)sums[WEIGHT], (double)sums[LOSS]);
    session->measured.odd_round = session->held.round;
    sums[SAMPLES] = step.samples;
    sums[WEIGHT] = step.weight;
    sums[LOSS] = step.loss;
}

static cn_err vote(struct cn_session *session, struct cn_collective *collective,
                   struct cn_step_flags *flags, struct cn_step_times *times, float sums[VOTES])
{
    struct cn_reducer *reducer = session->reducer;
    uint32_t rank = reducer ? reducer->rank : 0, size = reducer ? reducer->size : 1;
    cn_err err;

    sums[REFORM_REQUESTED] = flags->reform_requested ? 1 : 0;
    sums[ABANDON] = flags->abandon ? 1 : 0;
    sums[STORE] = cn_session_store_due(session) ? 1 : 0;
    sums[WHOLE] = session->plan.trains && cn_session_wants_whole_store(session) ? 1 : 0;
    sums[TRACED] = session->config.timeline ? 1 : 0;
    if (reducer && rank == 0 && session->plan.trains && !cn_session_is_sharded(session))
        choose_buckets(session, times, sums);
    sums[COMPUTED + rank] = 1e-3f * (float)(times->computed - times->begun);
    sums[COMPUTED + size + rank] = cn_slow_reason_pack(flags->slow);
    err = cn_all_reduce(collective, CN_REDUCE_SUM, sums, COMPUTED + 2 * size);
    if (err)
        return err;
    times->voted = cn_platform_now_us();
    flags->reform_requested = sums[REFORM_REQUESTED] > 0;
    flags->abandon = sums[ABANDON] > 0;
    if (sums[DIVERGED] > 0)
        return CN_EDIVERGED;
    bound_sums(session, sums);
    if (!session->data.weighted)
        sums[WEIGHT] = sums[SAMPLES];
    return CN_OK;
}

// Notes the pending sums of a step. A member with shards has only a part of the sums and cannot
// complete a step alone.
static void note_sums(struct cn_session *session)
{
    if (session->reducer && session->plan.trains && !cn_session_is_sharded(session))
        session->steps.pending = (struct cn_reduced_step){.epoch = session->held.epoch,
                                                          .round = session->held.round,
                                                          .step = session->held.step + 1};
}

// Computes and reduces this member's part of a step. A member whose loss is not finite also takes
// part; its vote says so.
static cn_err reduce_step(struct cn_session *session, struct cn_collective *collective,
                          struct cn_step_flags *flags, struct cn_step_times *times,
                          float sums[VOTES])
{
    bool chained = session->plan.trains && session->plan.chain.parts > 1;
    bool shared = !chained && cn_session_shares_gradients(session);
    bool sharded = session->plan.trains && !chained && cn_session_is_sharded(session);
    bool overlaps = session->reducer && session->plan.trains && !shared && !chained &&
                    (sharded || cn_trainer_bucket_count(session->trainer) > 1);
    bool finite = true;
    struct cn_metrics metrics = {0};
    struct cn_trainer_sink sink;
    cn_err local, err;

    if (session->reducer) {
        session->reducer->set = session->plan.whole ? NULL : &session->plan.train;
        session->reducer->shares = sharded ? &session->plan : NULL;
        cn_reducer_begin(session->reducer, &sink);
    }
    local = chained  ? cn_session_run_chain(session, first_batch(session), &metrics)
            : shared ? cn_session_accumulate_shared(session, first_batch(session), &metrics)
                     : accumulate(session, overlaps ? &sink : NULL, &metrics);
    times->computed = cn_platform_now_us();
    if ((shared || chained) && session->reducer)
        times->computed -= session->reducer->waited_us; // as if all the waiting came last
    if (local && local != CN_EDIVERGED) {
        if (session->reducer)
            cn_reducer_cancel(session->reducer);
        return local;
    }
    err = overlaps  ? cn_reducer_finish(session->reducer)
          : chained ? cn_session_reduce_chain(session, collective, &finite)
          : !shared ? reduce_gradients(session, collective)
                    : CN_OK;
    if (!err && sharded)
        err = cn_session_check_share(session, collective, &finite);
    times->reduced = cn_platform_now_us();
    if (err)
        return err;
    sums[SAMPLES] = (float)metrics.count;
    sums[WEIGHT] = (float)metrics.weight;
    sums[LOSS] = local ? 0 : (float)metrics.loss;
    sums[DIVERGED] = local || !finite ? 1 : 0;
    note_sums(session);
    return vote(session, collective, flags, times, sums);
}

// Updates the moving averages of the parts of a step's time, on this board and in the group.
static void note_times(struct cn_session *session, const struct cn_step_times *times,
                       const float sums[VOTES])
{
    struct cn_step_split *split = &session->measured.split;
    double own = (double)sums[COMPUTED], slowest = 0, rest;

    if (session->reducer)
        own = (double)sums[COMPUTED + session->reducer->rank];
    for (uint32_t r = 0; session->reducer && r < session->reducer->size; r++) {
        follow(&split->member_ms[r], (double)sums[COMPUTED + r]);
        slowest = fmax(slowest, (double)sums[COMPUTED + r]);
        split->slow[r] = cn_slow_reason_unpack(sums[COMPUTED + session->reducer->size + r]);
    }
    rest = 1e-3 * (double)(times->voted - times->computed);
    slowest = fmin(fmax(slowest - own, 0), rest);
    follow(&split->voted_ms, 1e-3 * (double)(times->voted - times->begun));
    follow(&split->compute_ms, own + 1e-3 * (double)(times->applied - times->voted));
    follow(&split->wait_ms, slowest);
    follow(&split->wire_ms, rest - slowest);
    follow(&session->measured.busy_ms, own);
    follow(&session->measured.step_s, 1e-6 * (double)(times->applied - times->begun));
    cn_session_note_speeds(session);
    cn_session_note_waits(session);
}

// Measures the calls and applies rank 0's choice of buckets, even after a step that was not
// applied, because the others do too. A choice that no program makes is passed over.
static cn_err tune(struct cn_session *session, const struct cn_step_times *times,
                   const float sums[VOTES])
{
    struct cn_bucket_choice choice;

    if (!(sums[BUCKET] >= 0 && sums[BUCKET] <= BUCKET_MOST) ||
        !(sums[WINDOW] >= 0 && sums[WINDOW] <= CN_WINDOW_MOST))
        return CN_OK;
    choice = (struct cn_bucket_choice){(size_t)sums[BUCKET] << 10, (uint32_t)sums[WINDOW]};
    if (!session->reducer || !choice.bucket || !choice.window)
        return CN_OK;
    cn_reducer_measure(session->reducer, times);
    return cn_reducer_use(session->reducer, &choice);
}

static cn_err apply(struct cn_session *session, struct cn_collective *collective,
                    const float sums[VOTES])
{
    cn_err err;

    if (!session->plan.trains)
        return CN_OK;
    err = cn_session_correct(session, (double)sums[WEIGHT]);
    if (err)
        return err;
    err = cn_session_is_cut(session)
              ? cn_session_clip_chain(session, collective, (double)sums[WEIGHT])
              : cn_session_clip_share(session, collective, (double)sums[WEIGHT]);
    if (!err)
        err = cn_trainer_apply_weighted(session->trainer, (double)sums[SAMPLES],
                                        (double)sums[WEIGHT]);
    if (!err && session->plan.shards > 1)
        err = cn_session_gather_weights(session, collective);
    return err;
}

// Discards everything of the step.
static cn_err drop(struct cn_session *session, cn_err err, bool loss_is_finite)
{
    cn_err discarded;

    if (err == CN_EDIVERGED)
        name_fault(session, loss_is_finite);
    session->steps.pending = (struct cn_reduced_step){0};
    discarded = cn_trainer_discard(session->trainer);
    return err ? err : discarded;
}

// Applies a step that all members have voted for, as every member does.
static cn_err commit(struct cn_session *session, struct cn_collective *collective, uint64_t epoch,
                     const float sums[VOTES])
{
    cn_err err = apply(session, collective, sums);

    if (err)
        return drop(session, err, true);
    session->steps.pending = (struct cn_reduced_step){0};
    count_step(session, sums[SAMPLES], sums[LOSS], sums[WEIGHT]);
    cn_session_balance(session, sums + COMPUTED);
    session->steps.applied = (struct cn_reduced_step){
        .epoch = epoch, .round = session->held.round, .step = session->held.step};
    memcpy(session->steps.applied.votes, sums, VOTES * sizeof(float));
    return CN_OK;
}

static uint64_t epoch_of(const struct cn_session *session, const struct cn_reduced_step *step,
                         uint32_t number)
{
    const struct cn_checkpoint *held = &session->held;

    return held->phase == CN_PHASE_TRAIN && step->round == held->round && step->step == number
               ? step->epoch
               : 0;
}

uint64_t cn_session_holds(const struct cn_session *session)
{
    return epoch_of(session, &session->steps.pending, session->held.step + 1);
}

uint64_t cn_session_applied(const struct cn_session *session)
{
    return epoch_of(session, &session->steps.applied, session->held.step);
}

cn_err cn_session_roll_forward(struct cn_session *session, const float votes[CN_STEP_VOTES])
{
    struct cn_step_sums step = {votes[SAMPLES], votes[WEIGHT], votes[LOSS]};

    if (!cn_sum_bound_step(&step, CN_SUM_COUNT_MOST))
        return cn_session_drop_sums(session);
    return commit(session, NULL, session->steps.pending.epoch, votes);
}

cn_err cn_session_drop_sums(struct cn_session *session)
{
    return session->steps.pending.epoch ? drop(session, CN_OK, false) : CN_OK;
}

cn_err cn_session_step(struct cn_session *session, struct cn_collective *collective,
                       struct cn_step_flags *flags)
{
    struct cn_step_times times = {0};
    float sums[VOTES] = {0};
    cn_err err = cn_session_plan_step(session, collective);

    times.begun = cn_platform_now_us();
    if (!err)
        err = reduce_step(session, collective, flags, &times, sums);
    if (err && cn_dataset_has_changed(session->data.set))
        return CN_EWEDGED; // the failure may not be in the file that the next start reads
    if (err && err != CN_EDIVERGED && session->steps.pending.epoch)
        return err; // without the votes it is unknown whether another member has applied the step
    if (err || flags->abandon)
        return drop(session, err, false);
    err = commit(session, collective, session->held.epoch, sums);
    if (err)
        return err;
    times.applied = cn_platform_now_us();
    note_times(session, &times, sums);
    if (sums[TRACED] > 0)
        err = cn_session_trace(session, &times);
    if (err)
        return err;
    err = tune(session, &times, sums);
    return err || !(sums[STORE] > 0) ? err : cn_session_store(session, collective, sums[WHOLE] > 0);
}
