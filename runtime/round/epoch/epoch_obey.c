#include "runtime/round/epoch/epoch_obey.h"

#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"
#include "runtime/round/epoch/epoch_control.h"
#include "runtime/round/epoch/epoch_limits.h"
#include "runtime/round/epoch/epoch_say.h"
#include "runtime/round/epoch/round_file.h"
#include "runtime/round/round.h"
#include "runtime/round/session/session_trace.h"

#define SAVE_MS 5000 // time between two checkpoints in a round

static cn_err run_steps(struct cn_epoch *epoch)
{
    struct cn_session *session = epoch->session;
    bool leads = epoch->view.view.rank == 0;
    uint64_t begun_us;
    cn_err err;

    while (!cn_session_round_done(session)) {
        struct cn_step_flags flags = {.reform_requested = cn_mailbox_has_reform_request(epoch->box),
                                      .slow = cn_mailbox_slow(epoch->box)};
        struct cn_round_info news;
        struct cn_round_plan plan = {.action = CN_DO_STEP};

        if (cn_mailbox_stopped(epoch->box))
            return CN_ECANCELED;
        if (leads && cn_mailbox_news(epoch->box, &news))
            cn_round_next(cn_session_held(session), &news, &plan);
        flags.abandon = plan.action != CN_DO_STEP;
        err = cn_session_step(session, epoch->collective, &flags);
        if (err)
            return err;
        if (flags.abandon)
            return CN_OK; // the leader's next command gives the decision
        cn_epoch_tell_progress(epoch);
        if (flags.reform_requested)
            return CN_EAGAIN;
        err = cn_session_save(session, SAVE_MS);
        if (err)
            return err;
    }
    begun_us = cn_platform_now_us();
    err = cn_session_finish(session, epoch->collective);
    cn_session_trace_work(session, "make update", begun_us);
    return err;
}

// Trains the rest of a round. If its numbers are no longer finite, all members give up the round
// together; the next round starts from the aggregator's version.
static cn_err do_steps(struct cn_epoch *epoch, size_t bucket)
{
    struct cn_session *session = epoch->session;
    cn_err err = cn_session_set_bucket(session, bucket);

    if (!err)
        err = run_steps(epoch);
    epoch->fresh = !err && cn_session_held(session)->phase == CN_PHASE_SEND;
    if (err != CN_EDIVERGED && err != CN_ERANGE)
        return err;
    cn_log(CN_LOG_ERROR, "epoch", "round %u, step %u: %s; the round is given up (%s)",
           cn_session_held(session)->round, cn_session_held(session)->step,
           err == CN_ERANGE ? "a sample has a label that is no class of the model, or the model "
                              "reads a row outside of a table"
                            : "the loss or a weight change is not finite or too large",
           err == CN_ERANGE ? "a file may have changed since it was checked"
                            : "if the loss had been growing, a lower learning_rate helps");
    return cn_session_abandon(session, NULL);
}

static cn_err do_base(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    struct cn_session *session = epoch->session;
    const struct cn_checkpoint *held = cn_session_held(session);
    struct cn_collective *collective = epoch->collective;
    struct cn_session_version version = {
        .number = command->base.number,
        .size = (size_t)command->base.size,
        .delta = command->base.delta,
        .forget = command->base.forget,
    };
    cn_err err;

    if (held->phase != CN_PHASE_EMPTY && held->phase != CN_PHASE_BASE)
        return CN_EFORMAT;
    if (!command->base.bytes) {
        if (!cn_session_may_take(session, version.number, version.delta, command->base.size))
            return CN_ERANGE;
        command->base.bytes = cn_scratch_allocate(version.size);
        if (!command->base.bytes)
            return CN_ENOMEM;
    }
    err = cn_broadcast(collective, 0, command->base.bytes, version.size);
    if (err)
        return err;
    memcpy(version.digest, command->base.digest, CN_DIGEST_SIZE);
    version.bytes = command->base.bytes;
    err = cn_session_install(session, collective, &version);
    if (!err)
        cn_epoch_say_version(session);
    return err;
}

static cn_err do_begin(struct cn_epoch *epoch, const struct cn_round_order *order)
{
    struct cn_session *session = epoch->session;
    cn_err err = cn_session_gather_stale(session, epoch->collective);

    if (!err)
        err = cn_session_begin(session, order);
    if (!err)
        cn_round_file_save(session, order);
    return err;
}

static cn_err do_decide(struct cn_epoch *epoch, const struct cn_decision *decision)
{
    struct cn_session *session = epoch->session;
    const struct cn_checkpoint *held = cn_session_held(session);

    if (held->phase != CN_PHASE_SEND)
        return CN_EFORMAT;
    if (cn_round_outcome(decision, held->round, held->frame_digest) == CN_OUTCOME_OTHER)
        cn_epoch_say_other(session);
    else
        cn_epoch_say_verdict(session, epoch->view.view.rank == 0 ? epoch->refusal : "",
                             decision->verdict);
    return cn_session_decide(session, decision);
}

static cn_err do_abandon(struct cn_epoch *epoch, const struct cn_decision *decision)
{
    struct cn_session *session = epoch->session;
    const struct cn_checkpoint *held = cn_session_held(session);
    bool counts = cn_round_outcome(decision, held->round, held->frame_digest) != CN_OUTCOME_NOTHING;
    cn_err err = held->phase == CN_PHASE_TRAIN ? CN_OK : CN_EFORMAT;

    if (!err && !counts) // before the weights: nothing may fail between them and the abandonment
        err = cn_session_gather_waiting(session, epoch->collective);
    if (!err)
        err = cn_session_collect(session, epoch->collective);
    if (err)
        return err;
    if (counts)
        cn_epoch_say_other(session);
    return cn_session_abandon(session, decision);
}

static cn_err obey(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    struct cn_session *session = epoch->session;
    enum cn_phase phase = cn_session_held(session)->phase;

    if (!cn_epoch_may_obey(epoch, command))
        return CN_EFORMAT;
    switch (command->kind) {
    case CN_EPOCH_IDLE:
    case CN_EPOCH_END:
        return CN_OK;
    case CN_EPOCH_BASE:
        return do_base(epoch, command);
    case CN_EPOCH_CONTROL:
        return cn_epoch_do_control(epoch, command);
    case CN_EPOCH_BEGIN:
        epoch->over = false;
        return phase == CN_PHASE_BASE ? do_begin(epoch, &command->begin) : CN_EFORMAT;
    case CN_EPOCH_STEPS:
        if (phase != CN_PHASE_TRAIN)
            return CN_EFORMAT;
        cn_session_set_wire(session, command->steps.wire);
        return do_steps(epoch, (size_t)command->steps.bucket);
    case CN_EPOCH_ABANDON:
        return do_abandon(epoch, &command->decision);
    case CN_EPOCH_DECIDE:
        return do_decide(epoch, &command->decision);
    case CN_EPOCH_COPY:
        return cn_session_store_copies(session, epoch->collective);
    case CN_EPOCH_REFORM:
        return CN_EAGAIN;
    case CN_EPOCH_RESET:
        return CN_ESTALE;
    }
    return CN_EFORMAT;
}

cn_err cn_epoch_obey(struct cn_epoch *epoch, struct cn_epoch_command *command, uint64_t *waits_us)
{
    static const char *const names[] = {
        [CN_EPOCH_BASE] = "take version",   [CN_EPOCH_CONTROL] = "take control variate",
        [CN_EPOCH_BEGIN] = "begin round",   [CN_EPOCH_ABANDON] = "give round up",
        [CN_EPOCH_DECIDE] = "take verdict", [CN_EPOCH_COPY] = "copy what waits",
    };
    const struct cn_session *session = epoch->session;
    uint64_t begun_us = cn_platform_now_us();
    bool named = command->kind < sizeof(names) / sizeof(names[0]) && names[command->kind];
    cn_err err;

    if (command->kind == CN_EPOCH_IDLE)
        return obey(epoch, command);
    cn_session_trace_work(session, "wait", *waits_us);
    err = obey(epoch, command);
    if (named)
        cn_session_trace_work(session, names[command->kind], begun_us);
    *waits_us = cn_platform_now_us();
    return err;
}
