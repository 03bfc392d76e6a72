// session_pipeline.c - a step of a chain: passes of this board's part, and messages to and from the
// neighbours, in the order of runtime/group/pipeline_order.h.
//
// The worker computes; the queue of the reducer sends and receives. A receive is posted as early as
// its place in the order allows, with a buffer of its own. The buffers are allocated when the
// trainer opens and stay.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/pipeline_order.h"
#include "runtime/group/purpose.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"

// A step of this board's part.
struct run {
    struct cn_session *session;
    const struct cn_chain_place *place;
    struct cn_set before, behind; // this board and its neighbour
    struct cn_chain_lane *lanes;  // by enum cn_boundary
    uint64_t first;               // number of the step's first micro-batch
    uint64_t first_read;          // its number for this board's reader
    const struct cn_batch *batch; // samples of the micro-batch that passes forward
    struct cn_metrics *metrics;
    bool diverged;
};

void cn_session_count_messages(const struct cn_session *session, uint32_t counts[CN_BOUNDARY_COUNT])
{
    uint32_t part = session->cut.part, own = session->cut.slots;

    counts[CN_BOUNDARY_INPUTS] = part ? cn_session_in_flight(&session->cut, part - 1) : 0;
    counts[CN_BOUNDARY_OUTPUTS] = own;
    counts[CN_BOUNDARY_OUTPUT_GRADIENTS] = own;
    counts[CN_BOUNDARY_INPUT_GRADIENTS] = own + 1;
}

// Returns the words of one sample in a message: of the trainer's values, and of samples behind
// them.
static size_t message_words(const struct cn_session *session, enum cn_boundary which)
{
    size_t words = cn_trainer_boundary_words(session->trainer, which);
    uint32_t part = session->cut.part;

    if (which == CN_BOUNDARY_INPUTS && part > 0)
        words += cn_session_sample_words(session, part - 1);
    if (which == CN_BOUNDARY_OUTPUTS)
        words += cn_session_sample_words(session, part);
    return words;
}

uint64_t cn_session_sample_bytes(const struct cn_session *session)
{
    uint32_t counts[CN_BOUNDARY_COUNT], part = session->cut.part;
    size_t words;

    cn_session_count_messages(session, counts);
    words = counts[CN_BOUNDARY_OUTPUTS] * cn_session_sample_words(session, part);
    if (part > 0)
        words += counts[CN_BOUNDARY_INPUTS] * cn_session_sample_words(session, part - 1);
    return (uint64_t)words * session->config.job->batch * sizeof(float);
}

cn_err cn_session_take_lanes(struct cn_session *session)
{
    uint32_t counts[CN_BOUNDARY_COUNT];

    if (!cn_session_is_cut(session))
        return CN_OK;
    cn_session_free_lanes(session);
    cn_session_count_messages(session, counts);
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++) {
        struct cn_chain_lane *lane = &session->chain.lanes[which];

        lane->words = message_words(session, (enum cn_boundary)which) * session->config.job->batch;
        lane->count = counts[which];
        lane->buffers = malloc((lane->words * lane->count + 1) * sizeof(*lane->buffers));
        lane->works = calloc(lane->count + 1, sizeof(*lane->works));
        if (!lane->buffers || !lane->works)
            return CN_ENOMEM;
    }
    return cn_session_open_chain_log(session);
}

void cn_session_free_lanes(struct cn_session *session)
{
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++) {
        free(session->chain.lanes[which].buffers);
        free(session->chain.lanes[which].works);
        session->chain.lanes[which] = (struct cn_chain_lane){0};
    }
}

// Forgets the calls of the step before: all have ended.
static void begin_lanes(struct run *run)
{
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        memset(run->lanes[which].works, 0,
               run->lanes[which].count * sizeof(*run->lanes[which].works));
}

static cn_err wait_for(const struct run *run, struct cn_work work)
{
    struct cn_reducer *reducer = run->session->reducer;
    uint64_t begun_us = cn_platform_now_us();
    cn_err err = work.number ? cn_reducer_wait(reducer, work) : CN_OK;

    reducer->waited_us += cn_platform_now_us() - begun_us;
    return err;
}

// Waits until the call that uses a micro-batch's buffer has ended, and returns the buffer.
static cn_err take_buffer(struct run *run, enum cn_boundary which, uint32_t batch, float **buffer)
{
    struct cn_chain_lane *lane = &run->lanes[which];
    uint32_t index = batch % lane->count;

    *buffer = lane->buffers + index * lane->words;
    return wait_for(run, lane->works[index]);
}

static enum cn_chain_act act_of(enum cn_boundary which)
{
    switch (which) {
    case CN_BOUNDARY_INPUTS:
        return CN_CHAIN_RECEIVE_F;
    case CN_BOUNDARY_OUTPUTS:
        return CN_CHAIN_SEND_F;
    case CN_BOUNDARY_OUTPUT_GRADIENTS:
        return CN_CHAIN_RECEIVE_B;
    default:
        return CN_CHAIN_SEND_B;
    }
}

// Posts a message from or to a neighbour. If the queue is full, first waits until it is empty:
// posted calls never wait for later ones.
static cn_err post(struct run *run, enum cn_boundary which,
                   const struct cn_pipeline_message *message)
{
    struct cn_chain_lane *lane = &run->lanes[which];
    uint32_t index = message->batch % (lane->count ? lane->count : 1);
    bool sends = message->from == run->place->part;
    uint32_t neighbour = sends ? message->to : message->from;
    struct cn_reducer *reducer = run->session->reducer;
    const struct cn_collective_call call = {
        .kind = sends ? CN_COLLECTIVE_SEND : CN_COLLECTIVE_RECEIVE,
        .set = neighbour < run->place->part ? &run->before : &run->behind,
        .peer = cn_ranks_of_part(run->place, neighbour),
        .data = lane->buffers + index * lane->words,
        .count = lane->words * sizeof(float),
        .fingerprint = cn_purpose_at(message->gradient ? CN_PURPOSE_ACTIVATION_GRADIENTS
                                                       : CN_PURPOSE_ACTIVATIONS,
                                     message->batch),
    };
    cn_err err;

    if (!lane->words)
        return CN_OK;
    cn_session_note_ended(run->session);
    err = cn_reducer_post(reducer, &call, &lane->works[index]);
    if (err == CN_EAGAIN) {
        err = wait_for(run, reducer->newest);
        cn_session_note_ended(run->session);
        if (!err)
            err = cn_reducer_post(reducer, &call, &lane->works[index]);
    }
    if (!err)
        cn_session_note_call(run->session, act_of(which), message->batch, lane->works[index],
                             call.count);
    return err;
}

// --- passes ---

// Returns the place in a message behind the trainer's values.
static float *behind_values(const struct cn_session *session, enum cn_boundary which,
                            uint32_t samples, float *message)
{
    return message + cn_trainer_boundary_words(session->trainer, which) * samples;
}

// Copies a message between its buffer and the trainer. came is true for a received message.
static cn_err move_message(struct run *run, enum cn_boundary which, uint32_t batch, bool came)
{
    struct cn_trainer *trainer = run->session->trainer;
    uint32_t slot = batch % run->session->cut.slots;
    uint32_t samples = run->session->config.job->batch;
    float *buffer;
    cn_err err;

    if (!run->lanes[which].words)
        return CN_OK;
    err = take_buffer(run, which, batch, &buffer);
    if (err)
        return err;
    if (which == CN_BOUNDARY_OUTPUTS)
        cn_session_put_samples(run->session, run->place->part, run->batch,
                               behind_values(run->session, which, samples, buffer));
    return came ? cn_trainer_set_boundary(trainer, slot, which, samples, buffer)
                : cn_trainer_get_boundary(trainer, slot, which, samples, buffer);
}

// Takes the samples of a micro-batch: from the data set, or from the message that has come.
static const struct cn_batch *take_samples(struct run *run, uint32_t number)
{
    struct cn_session *session = run->session;
    const struct cn_chain_lane *lane = &run->lanes[CN_BOUNDARY_INPUTS];
    uint32_t part = run->place->part, samples = session->config.job->batch;
    float *message;

    if (part == 0 || !cn_session_takes_turns(session))
        return cn_reader_take(session->data.reader, run->first_read + number);
    message = lane->buffers + number % lane->count * lane->words;
    cn_session_get_samples(session, part - 1,
                           behind_values(session, CN_BOUNDARY_INPUTS, samples, message), samples,
                           &session->data.batch);
    return &session->data.batch;
}

// From stage 2 on, the members that hold this part together exchange it within a pass. They are at
// the same tick, so these calls come before the tick's messages on all of them.
static bool exchanges(const struct run *run)
{
    return cn_trainer_stage(run->session->trainer) >= CN_STAGE_GRADIENTS;
}

static cn_err run_forward(struct run *run, uint32_t slot)
{
    struct cn_trainer *trainer = run->session->trainer;
    const struct cn_trainer_exchange exchange = cn_session_exchange(run->session);

    return exchanges(run)
               ? cn_trainer_forward_shared(trainer, slot, run->batch, run->metrics, &exchange)
               : cn_trainer_forward(trainer, slot, run->batch, run->metrics);
}

static cn_err run_backward(struct run *run, uint32_t slot, bool last)
{
    struct cn_trainer *trainer = run->session->trainer;
    const struct cn_trainer_exchange exchange = cn_session_exchange(run->session);

    return exchanges(run) ? cn_trainer_backward_shared(trainer, slot, &exchange, last)
                          : cn_trainer_backward(trainer, slot, NULL);
}

// Says whose samples cannot be trained, where they came in a message. That member finds out that
// its file changed since it was checked, when this one leaves the step.
static cn_err refuse_samples(const struct run *run)
{
    const struct cn_session *session = run->session;

    if (run->place->part == 0 || !cn_session_takes_turns(session))
        return CN_ERANGE;
    cn_log(CN_LOG_ERROR, "chain",
           "round %u, step %u: a label that came from %s is no class of the model",
           session->held.round, cn_session_position(session) + 1,
           cn_session_member(session, cn_ranks_of_part(run->place, 0))->name);
    return CN_EPEER;
}

static cn_err forward(struct run *run, uint32_t number)
{
    struct cn_session *session = run->session;
    uint64_t index = run->first + number;
    cn_err err = move_message(run, CN_BOUNDARY_INPUTS, number, true);
    uint64_t begun_us = cn_platform_now_us();

    if (err)
        return err;
    run->batch = take_samples(run, number);
    session->sharing.batch = number;
    cn_trainer_draw(session->trainer,
                    (index * CN_GROUP_MAX + session->planning.seat) * session->config.job->batch);
    err = run_forward(run, number % session->cut.slots);
    if (err == CN_EDIVERGED) { // continues, because the others wait for this board's messages
        run->diverged = true;
        err = CN_OK;
    }
    if (err == CN_ERANGE)
        return refuse_samples(run);
    cn_session_note_act(session, CN_CHAIN_FORWARD, number, begun_us, cn_platform_now_us(), 0);
    return err ? err : move_message(run, CN_BOUNDARY_OUTPUTS, number, false);
}

static cn_err backward(struct run *run, uint32_t number)
{
    struct cn_session *session = run->session;
    cn_err err = move_message(run, CN_BOUNDARY_OUTPUT_GRADIENTS, number, true);
    uint64_t begun_us = cn_platform_now_us();

    session->sharing.batch = number;
    if (!err)
        err = run_backward(run, number % session->cut.slots, number + 1 == session->plan.micro);
    cn_session_note_act(session, CN_CHAIN_BACKWARD, number, begun_us, cn_platform_now_us(), 0);
    return err ? err : move_message(run, CN_BOUNDARY_INPUT_GRADIENTS, number, false);
}

static cn_err post_messages(struct run *run, const struct cn_pipeline *pipeline)
{
    struct cn_pipeline_message messages[CN_PIPELINE_PARTS_MAX];
    uint32_t count = cn_pipeline_messages(pipeline, messages), own = run->place->part;
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && i < count; i++) {
        bool gradient = messages[i].gradient;

        if (messages[i].from == own)
            err = post(run, gradient ? CN_BOUNDARY_INPUT_GRADIENTS : CN_BOUNDARY_OUTPUTS,
                       &messages[i]);
        else if (messages[i].to == own)
            err = post(run, gradient ? CN_BOUNDARY_OUTPUT_GRADIENTS : CN_BOUNDARY_INPUTS,
                       &messages[i]);
    }
    return err;
}

static cn_err run_step(struct run *run)
{
    struct cn_pipeline pipeline;
    uint32_t own = run->place->part;
    cn_err err = CN_OK;

    cn_pipeline_begin(&pipeline, run->place->parts, run->session->plan.micro);
    pipeline.most = run->session->chain.most;
    while (!err && cn_pipeline_tick(&pipeline)) {
        if (pipeline.pass[own] == CN_PIPELINE_FORWARD)
            err = forward(run, pipeline.batch[own]);
        else if (pipeline.pass[own] == CN_PIPELINE_BACKWARD)
            err = backward(run, pipeline.batch[own]);
        if (!err)
            err = post_messages(run, &pipeline);
    }
    if (!err)
        err = wait_for(run, run->session->reducer->newest);
    if (!err)
        cn_session_note_ended(run->session);
    return err;
}

// Returns this board and the member of its chain that holds another part.
static struct cn_set pair_with(const struct cn_chain_place *place, uint32_t part)
{
    return cn_ranks_parts(place, 1u << place->part | 1u << part);
}

cn_err cn_session_run_chain(struct cn_session *session, uint64_t first, struct cn_metrics *metrics)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct run run = {.session = session,
                      .place = place,
                      .lanes = session->chain.lanes,
                      .first = first,
                      .first_read = cn_session_first_read(session, first),
                      .metrics = metrics};
    cn_err err;

    if (place->part > 0)
        run.before = pair_with(place, place->part - 1);
    if (place->part + 1 < place->parts)
        run.behind = pair_with(place, place->part + 1);
    begin_lanes(&run);
    cn_session_begin_chain_log(session);
    err = run_step(&run);
    if (err) // before the buffers are used again: calls that were posted may use them
        cn_reducer_cancel(session->reducer);
    return err ? err : run.diverged ? CN_EDIVERGED : CN_OK;
}

// --- evaluation ---

// Sends a message of an evaluation to a neighbour, or receives it. Uses the first buffer of its
// kind, which is free between steps and large enough for the batch of an evaluation.
static cn_err pass_on(struct cn_session *session, struct cn_collective *collective,
                      enum cn_boundary which, const struct cn_batch *batch)
{
    const struct cn_chain_place *place = &session->plan.chain;
    uint32_t neighbour = which == CN_BOUNDARY_INPUTS ? place->part - 1 : place->part + 1;
    struct cn_set pair = pair_with(place, neighbour);
    uint32_t samples = batch->count;
    size_t words = message_words(session, which) * samples;
    float *message = session->chain.lanes[which].buffers;
    float *behind = behind_values(session, which, samples, message);
    const struct cn_collective_call call = {
        .kind = which == CN_BOUNDARY_INPUTS ? CN_COLLECTIVE_RECEIVE : CN_COLLECTIVE_SEND,
        .set = &pair,
        .peer = cn_ranks_of_part(place, neighbour),
        .data = message,
        .count = words * sizeof(*message),
        .fingerprint = CN_PURPOSE_CHAIN_EVALUATION};
    cn_err err = CN_OK;

    if (which == CN_BOUNDARY_OUTPUTS) {
        cn_session_put_samples(session, place->part, batch, behind);
        err = cn_trainer_get_boundary(session->trainer, 0, which, samples, message);
    }
    if (!err && words)
        err = collective->ops->run(collective, &call);
    if (!err && which == CN_BOUNDARY_INPUTS && cn_session_takes_turns(session))
        cn_session_get_samples(session, place->part - 1, behind, samples, &session->data.batch);
    if (!err && which == CN_BOUNDARY_INPUTS)
        err = cn_trainer_set_boundary(session->trainer, 0, which, samples, message);
    return err;
}

cn_err cn_session_evaluate_chain(struct cn_session *session, struct cn_collective *collective,
                                 const struct cn_batch *batch, struct cn_metrics *metrics)
{
    const struct cn_chain_place *place = &session->plan.chain;
    cn_err err = CN_OK, diverged = CN_OK;

    if (place->part > 0)
        err = pass_on(session, collective, CN_BOUNDARY_INPUTS, batch);
    if (!err)
        err = cn_trainer_evaluate(session->trainer, batch, metrics);
    if (err == CN_EDIVERGED) {
        diverged = err;
        err = CN_OK;
    }
    if (!err && place->part + 1 < place->parts)
        err = pass_on(session, collective, CN_BOUNDARY_OUTPUTS, batch);
    return err ? err : diverged;
}
