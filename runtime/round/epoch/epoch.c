#include "runtime/round/epoch/epoch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/backend.h"
#include "runtime/port/platform.h"
#include "runtime/round/epoch/epoch_heal.h"
#include "runtime/round/epoch/epoch_say.h"
#include "runtime/round/epoch/round_file.h"
#include "runtime/round/round.h"
#include "runtime/round/session/session_sets.h"
#include "runtime/round/session/session_shards.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

#define IDLE_MS 300   // time between two IDLE commands; well below a group's timeout
#define SAVE_MS 5000  // time between two checkpoints in a round
#define RETRY_MS 1000 // wait before a version that could not be used is fetched again
#define COMMAND_SIZE 72

enum command_kind {
    COMMAND_IDLE,
    COMMAND_BASE,  // uses number, digest, size and delta; the bytes follow
    COMMAND_BEGIN, // uses order, whose newest travels as size and digest
    // Train the rest of the round and fill the outbox; size is a bucket's, number the wire format.
    COMMAND_STEPS,
    COMMAND_ABANDON, // uses the same fields as DECIDE
    // Uses number as the verdict, size as the round of the update that counts, digest and spare.
    COMMAND_DECIDE,
    COMMAND_END,
    COMMAND_REFORM, // a board outside the epoch asks to re-form the group
    COMMAND_RESET,  // the aggregator runs another run
};

struct command {
    enum command_kind kind;
    bool delta;
    uint32_t number;
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_round_order order; // its round travels as number
    double spare;
    uint8_t *bytes; // in BASE on the leader: owned
};

static void put_command(const struct command *command, uint8_t bytes[COMMAND_SIZE])
{
    memset(bytes, 0, COMMAND_SIZE);
    bytes[0] = (uint8_t)command->kind;
    bytes[1] = command->delta;
    cn_put_u32(bytes + 4, command->number);
    cn_put_u64(bytes + 8, command->size);
    memcpy(bytes + 16, command->digest, CN_DIGEST_SIZE);
    if (command->kind == COMMAND_BEGIN)
        cn_put_u32(bytes + 4, command->order.round);
    bytes[2] = (uint8_t)command->order.rule.mode;
    bytes[3] = (uint8_t)command->order.rule.value_bits;
    cn_put_u32(bytes + 48, command->order.steps);
    memcpy(bytes + 56, &command->order.rule.density, 8);
    memcpy(bytes + 64, &command->spare, 8);
}

static void get_command(const uint8_t bytes[COMMAND_SIZE], struct command *command)
{
    *command = (struct command){
        .kind = bytes[0],
        .delta = bytes[1] != 0,
        .number = cn_get_u32(bytes + 4),
        .size = cn_get_u64(bytes + 8),
    };
    memcpy(command->digest, bytes + 16, CN_DIGEST_SIZE);
    command->order.round = command->number;
    command->order.rule.mode = bytes[2];
    command->order.rule.value_bits = bytes[3];
    command->order.steps = cn_get_u32(bytes + 48);
    memcpy(&command->order.rule.density, bytes + 56, 8);
    memcpy(&command->spare, bytes + 64, 8);
    command->order.newest.round = (uint32_t)command->size;
    memcpy(command->order.newest.digest, command->digest, CN_DIGEST_SIZE);
}

void cn_epoch_tag(const struct cn_session *session, struct cn_state_tag *tag)
{
    const struct cn_checkpoint *held = &session->held;

    *tag = (struct cn_state_tag){
        .lineage = held->lineage,
        .run = held->run,
        // A held base counts as part of the next round: it is newer than anything of the round
        // before.
        .round = held->phase == CN_PHASE_EMPTY || held->phase == CN_PHASE_BASE ? held->round + 1
                                                                               : held->round,
        .phase = (uint32_t)held->phase,
        .step = held->phase == CN_PHASE_TRAIN ? held->step : held->version,
        .counted_round = held->counted.round,
        .counted_own = held->counted.own,
    };
    memcpy(tag->counted, held->counted.digest, CN_TAG_DIGEST_SIZE);
    if (held->phase == CN_PHASE_TRAIN || held->phase == CN_PHASE_SEND)
        tag->samples = held->samples;
    if (held->phase == CN_PHASE_SEND)
        memcpy(tag->frame, held->frame_digest, CN_TAG_DIGEST_SIZE);
}

static void tell_progress(struct cn_epoch *epoch)
{
    struct cn_progress progress = {
        .epoch = epoch->view.view.epoch,
        .rank = epoch->view.view.rank,
        .size = epoch->view.view.size,
        .ended = epoch->ended,
    };
    const char *why;

    progress.backend = cn_backend_name(epoch->collective, &why);
    if (why)
        snprintf(progress.backend_why, sizeof(progress.backend_why), "%s", why);
    progress.encrypted = epoch->secure && strcmp(progress.backend, epoch->secure) == 0;
    cn_session_tell(epoch->session, &progress);
    cn_mailbox_put_progress(epoch->box, &progress);
}

// Plans the next command, as the leader.

static cn_err want_version(struct cn_epoch *epoch, const struct cn_round_fetch *fetch)
{
    struct cn_errand_request request = {.kind = CN_ERRAND_FETCH, .size = fetch->size};

    if (cn_platform_now_ms() < epoch->fetch_at_ms)
        return CN_OK;
    if (!cn_session_may_take(epoch->session, fetch->number, fetch->delta, fetch->size)) {
        epoch->fetch_at_ms = cn_platform_now_ms() + RETRY_MS;
        epoch->avoid_delta = true;
        return CN_OK;
    }
    memcpy(request.digest, fetch->digest, CN_DIGEST_SIZE);
    epoch->asked = *fetch;
    return cn_mailbox_request(epoch->box, &request);
}

// Turns a fetched blob into a BASE command if it leads to the version that the news names.
static void plan_fetched(struct cn_epoch *epoch, const struct cn_round_info *news,
                         const struct cn_round_fetch *fetch, struct cn_errand_answer *answer,
                         struct command *command)
{
    struct cn_session_version version = {
        .number = fetch->number,
        .bytes = answer->data,
        .size = answer->size,
        .delta = fetch->delta,
    };
    cn_err err = answer->gone ? CN_ENOTFOUND : CN_OK;

    memcpy(version.digest, news->version_digest, CN_DIGEST_SIZE);
    if (!err && !fetch->last)
        err = cn_session_resolve_version(epoch->session, &version);
    if (!err)
        err = cn_session_check_version(epoch->session, &version);
    if (err) {
        cn_log(CN_LOG_WARN, "epoch", "version %u was not usable: %s", version.number,
               cn_err_text(err));
        // When the delta did not fit, the full version is fetched at once. The next news may name
        // another version.
        epoch->fetch_at_ms = epoch->avoid_delta ? cn_platform_now_ms() + RETRY_MS : 0;
        epoch->avoid_delta = true;
        free(answer->data);
        return;
    }
    epoch->avoid_delta = false;
    *command = (struct command){
        .kind = COMMAND_BASE,
        .delta = version.delta,
        .number = version.number,
        .size = version.size,
        .bytes = answer->data,
    };
    memcpy(command->digest, version.digest, CN_DIGEST_SIZE);
}

static cn_err plan_fetch(struct cn_epoch *epoch, const struct cn_round_info *news,
                         struct command *command)
{
    const struct cn_checkpoint *held = &epoch->session->held;
    bool asked = cn_mailbox_requested(epoch->box, CN_ERRAND_FETCH);
    struct cn_errand_answer answer;
    struct cn_round_fetch fetch;

    cn_round_choose_fetch(held, news, epoch->avoid_delta, &fetch);
    // A snapshot whose fetch was asked for may no longer be named by the news, and may not be in
    // the mailbox yet.
    if (asked && !fetch.delta && cn_round_leads_on(held, news, &epoch->asked)) {
        fetch = epoch->asked;
        fetch.last = false;
    }
    if (!asked || memcmp(epoch->asked.digest, fetch.digest, CN_DIGEST_SIZE) != 0)
        return want_version(epoch, &fetch); // replaces a version that is no longer wanted
    if (cn_mailbox_take_answer(epoch->box, CN_ERRAND_FETCH, &answer))
        plan_fetched(epoch, news, &fetch, &answer, command);
    return CN_OK;
}

static cn_err want_upload(struct cn_epoch *epoch)
{
    const struct cn_checkpoint *held = &epoch->session->held;
    struct cn_errand_request request = {
        .kind = CN_ERRAND_UPLOAD,
        .upload =
            {
                .run = held->run,
                .round = held->round,
                .frame = held->frame,
                .size = held->frame_size,
                .held_out_loss = held->held_out_loss,
                .held_out_correct = held->held_out_correct,
                .held_out_count = held->held_out_count,
                .measures = cn_session_measures(epoch->session),
                .train_loss = held->samples ? held->train_loss / (double)held->samples : 0,
                .fresh = epoch->fresh,
            },
    };

    epoch->fresh = false;
    memcpy(request.upload.digest, held->frame_digest, CN_DIGEST_SIZE);
    memcpy(request.upload.base, held->base_digest, CN_DIGEST_SIZE);
    return cn_mailbox_request(epoch->box, &request);
}

static void plan_begin(struct cn_epoch *epoch, const struct cn_round_info *news,
                       const struct cn_decision *newest, struct command *command)
{
    struct cn_link_path_stats link;

    cn_mailbox_link(epoch->box, &link);
    command->kind = COMMAND_BEGIN;
    cn_session_plan(epoch->session, news->round, &link, news->remaining_ms, &command->order);
    command->order.newest = *newest;
    command->size = newest->round;
    memcpy(command->digest, newest->digest, CN_DIGEST_SIZE);
}

// Returns the share of the round's deadline that is left; 0 for a closed round.
static double spare_of(struct cn_epoch *epoch)
{
    uint64_t deadline_ms = epoch->session->config.job->deadline_ms;
    struct cn_round_info news;

    if (!deadline_ms || !cn_mailbox_news(epoch->box, &news) ||
        news.round != epoch->session->held.round)
        return 0;
    return (double)news.remaining_ms / (double)deadline_ms;
}

static void plan_decision(struct cn_epoch *epoch, enum command_kind kind,
                          const struct cn_decision *decision, struct command *command)
{
    command->kind = kind;
    command->number = (uint32_t)decision->verdict;
    command->size = decision->round;
    memcpy(command->digest, decision->digest, CN_DIGEST_SIZE);
    command->spare = spare_of(epoch);
}

// Plans by the receipt of the outbox. A refusal names the update that counts instead.
static void plan_receipt(struct cn_epoch *epoch, const struct cn_errand_answer *answer,
                         struct command *command)
{
    static const uint8_t nothing[CN_DIGEST_SIZE];
    struct cn_decision decision = {.verdict = answer->verdict};

    if (memcmp(answer->accepted, nothing, CN_DIGEST_SIZE) != 0)
        decision.round = epoch->session->held.round;
    memcpy(decision.digest, answer->accepted, CN_DIGEST_SIZE);
    memcpy(epoch->refusal, answer->reason, sizeof(epoch->refusal));
    plan_decision(epoch, COMMAND_DECIDE, &decision, command);
}

static cn_err plan_send(struct cn_epoch *epoch, struct command *command)
{
    struct cn_errand_answer answer;

    if (cn_mailbox_take_answer(epoch->box, CN_ERRAND_UPLOAD, &answer)) {
        plan_receipt(epoch, &answer, command);
        free(answer.data);
    } else if (!cn_mailbox_requested(epoch->box, CN_ERRAND_UPLOAD)) {
        return want_upload(epoch);
    }
    return CN_OK;
}

static cn_err plan_command(struct cn_epoch *epoch, struct command *command)
{
    struct cn_round_info news;
    struct cn_round_plan plan;
    bool heard = cn_mailbox_news(epoch->box, &news);

    *command = (struct command){.kind = COMMAND_IDLE};
    if (cn_mailbox_knocked(epoch->box)) {
        command->kind = COMMAND_REFORM;
        return CN_OK;
    }
    cn_round_next(&epoch->session->held, heard ? &news : NULL, &plan);
    switch (plan.action) {
    case CN_DO_WAIT:
        return CN_OK;
    case CN_DO_RESET:
        command->kind = COMMAND_RESET;
        return CN_OK;
    case CN_DO_FETCH:
        return plan_fetch(epoch, &news, command);
    case CN_DO_BEGIN:
        plan_begin(epoch, &news, &plan.decision, command);
        return CN_OK;
    case CN_DO_STEP:
        command->kind = COMMAND_STEPS;
        command->size = cn_session_bucket(epoch->session);
        command->number = (uint32_t)epoch->session->config.settings->group.wire;
        return CN_OK;
    case CN_DO_ABANDON:
        plan_decision(epoch, COMMAND_ABANDON, &plan.decision, command);
        return CN_OK;
    case CN_DO_SEND:
        return plan_send(epoch, command);
    case CN_DO_DECIDE:
        cn_mailbox_drop_errand(epoch->box); // its receipt is no longer needed
        epoch->refusal[0] = '\0';
        plan_decision(epoch, COMMAND_DECIDE, &plan.decision, command);
        return CN_OK;
    case CN_DO_END:
        command->kind = COMMAND_END;
        return CN_OK;
    }
    return CN_OK;
}

static cn_err lead(struct cn_epoch *epoch, struct command *command)
{
    uint64_t idle_until = cn_platform_now_ms() + IDLE_MS;
    uint64_t now;
    cn_err err;

    for (;;) {
        if (cn_mailbox_stopped(epoch->box))
            return CN_ECANCELED;
        err = plan_command(epoch, command);
        if (err)
            return err;
        if (command->kind != COMMAND_IDLE && (command->kind != COMMAND_END || !epoch->ended))
            return CN_OK;
        now = cn_platform_now_ms();
        if (now >= idle_until)
            return CN_OK;
        cn_mailbox_wait(epoch->box, (uint32_t)(idle_until - now));
    }
}

// Carries out a command, as every member does.

static cn_err run_steps(struct cn_epoch *epoch)
{
    struct cn_session *session = epoch->session;
    bool leads = epoch->view.view.rank == 0;

    while (!cn_session_round_done(session)) {
        struct cn_step_flags flags = {.knocked = cn_mailbox_knocked(epoch->box)};
        struct cn_round_info news;
        struct cn_round_plan plan = {.action = CN_DO_STEP};
        cn_err err;

        if (cn_mailbox_stopped(epoch->box))
            return CN_ECANCELED;
        if (leads && cn_mailbox_news(epoch->box, &news))
            cn_round_next(&session->held, &news, &plan);
        flags.abandon = plan.action != CN_DO_STEP;
        session->slow = cn_mailbox_slow(epoch->box);
        err = cn_session_step(session, epoch->collective, &flags);
        if (err)
            return err;
        if (flags.abandon)
            return CN_OK; // the leader's next command gives the decision
        tell_progress(epoch);
        if (flags.knocked)
            return CN_EAGAIN;
        err = cn_session_save(session, SAVE_MS);
        if (err)
            return err;
    }
    return cn_session_finish(session, epoch->collective);
}

// Trains the rest of a round. If its numbers are no longer finite, all members give up the round
// alike; the next round starts from the aggregator's version.
static cn_err do_steps(struct cn_epoch *epoch, size_t bucket)
{
    struct cn_session *session = epoch->session;
    cn_err err = cn_session_set_bucket(session, bucket);

    if (!err)
        err = run_steps(epoch);
    epoch->fresh = !err && session->held.phase == CN_PHASE_SEND;
    if (err != CN_EDIVERGED && err != CN_ERANGE)
        return err;
    cn_log(
        CN_LOG_ERROR, "epoch",
        "round %u, step %u: the loss or a weight change is not finite or too large; the round is "
        "given up (a lower learning_rate helps where the loss had grown)",
        session->held.round, session->held.step);
    return cn_session_abandon(session, NULL);
}

static cn_err do_base(struct cn_epoch *epoch, struct command *command)
{
    struct cn_session *session = epoch->session;
    struct cn_collective *collective = epoch->collective;
    struct cn_session_version version = {
        .number = command->number,
        .size = (size_t)command->size,
        .delta = command->delta,
    };
    cn_err err;

    if (session->held.phase != CN_PHASE_EMPTY && session->held.phase != CN_PHASE_BASE)
        return CN_EFORMAT;
    if (!command->bytes) {
        if (!cn_session_may_take(session, command->number, command->delta, command->size))
            return CN_ERANGE;
        command->bytes = malloc(version.size ? version.size : 1);
        if (!command->bytes)
            return CN_ENOMEM;
    }
    err = cn_broadcast(collective, 0, command->bytes, version.size);
    if (err)
        return err;
    memcpy(version.digest, command->digest, CN_DIGEST_SIZE);
    version.bytes = command->bytes;
    err = cn_session_install(session, collective, &version);
    if (!err)
        cn_epoch_say_version(session);
    return err;
}

static cn_err do_begin(struct cn_session *session, const struct cn_round_order *order)
{
    cn_err err = cn_session_begin(session, order);

    if (!err)
        cn_round_file_save(session, order);
    return err;
}

static cn_err get_decision(const struct command *command, struct cn_decision *decision)
{
    if (command->number > CN_VERDICT_LATE || command->size > UINT32_MAX)
        return CN_EFORMAT;
    *decision = (struct cn_decision){.verdict = (enum cn_verdict)command->number,
                                     .round = (uint32_t)command->size,
                                     .spare = command->spare};
    memcpy(decision->digest, command->digest, CN_DIGEST_SIZE);
    return CN_OK;
}

static cn_err do_decide(struct cn_epoch *epoch, const struct command *command)
{
    struct cn_session *session = epoch->session;
    const struct cn_checkpoint *held = &session->held;
    struct cn_decision decision;
    cn_err err = held->phase == CN_PHASE_SEND ? get_decision(command, &decision) : CN_EFORMAT;

    if (err)
        return err;
    if (cn_round_outcome(&decision, held->round, held->frame_digest) == CN_OUTCOME_OTHER)
        cn_epoch_say_other(session);
    else
        cn_epoch_say_verdict(session, epoch->view.view.rank == 0 ? epoch->refusal : "",
                             decision.verdict);
    return cn_session_decide(session, &decision);
}

static cn_err do_abandon(struct cn_epoch *epoch, const struct command *command)
{
    struct cn_session *session = epoch->session;
    const struct cn_checkpoint *held = &session->held;
    struct cn_decision decision;
    cn_err err = held->phase == CN_PHASE_TRAIN ? get_decision(command, &decision) : CN_EFORMAT;

    if (!err)
        err = cn_session_catch_up(session, epoch->collective);
    if (!err)
        err = cn_session_bring_weights(session, epoch->collective);
    if (err)
        return err;
    if (cn_round_outcome(&decision, held->round, held->frame_digest) != CN_OUTCOME_NOTHING)
        cn_epoch_say_other(session);
    return cn_session_abandon(session, &decision);
}

static cn_err obey(struct cn_epoch *epoch, struct command *command)
{
    struct cn_session *session = epoch->session;

    switch (command->kind) {
    case COMMAND_IDLE:
    case COMMAND_END:
        return CN_OK;
    case COMMAND_BASE:
        return do_base(epoch, command);
    case COMMAND_BEGIN:
        if (session->held.phase != CN_PHASE_BASE)
            return CN_EFORMAT;
        return do_begin(session, &command->order);
    case COMMAND_STEPS:
        if (session->held.phase != CN_PHASE_TRAIN)
            return CN_EFORMAT;
        if (command->number > CN_BFLOAT16)
            return CN_EFORMAT;
        cn_session_set_wire(session, (enum cn_number)command->number);
        return do_steps(epoch, (size_t)command->size);
    case COMMAND_ABANDON:
        return do_abandon(epoch, command);
    case COMMAND_DECIDE:
        return do_decide(epoch, command);
    case COMMAND_REFORM:
        return CN_EAGAIN;
    case COMMAND_RESET:
        return CN_ESTALE;
    }
    return CN_EFORMAT;
}

static cn_err next_command(struct cn_epoch *epoch, struct command *command)
{
    struct cn_collective *collective = epoch->collective;
    bool leads = epoch->view.view.rank == 0;
    uint8_t bytes[COMMAND_SIZE] = {0};
    cn_err err;

    if (leads) {
        err = lead(epoch, command);
        if (err)
            return err;
        put_command(command, bytes);
    }
    err = cn_broadcast(collective, 0, bytes, sizeof(bytes));
    if (!err && !leads)
        get_command(bytes, command);
    return err;
}

cn_err cn_epoch_run(struct cn_epoch *epoch)
{
    struct cn_session *session = epoch->session;
    cn_err err;

    session->held.epoch = epoch->view.view.epoch;
    session->seat = epoch->view.view.ranks[epoch->view.view.rank];
    err = cn_session_join(session, epoch->collective, &epoch->view.view);
    if (!err)
        err = cn_epoch_heal(epoch);
    if (!err)
        err = cn_session_enter(session, epoch->collective, &epoch->view.view);
    if (!err && session->held.phase == CN_PHASE_SEND)
        err = cn_session_secure_outbox(session, epoch->collective);
    while (!err) {
        struct command command = {0};

        tell_progress(epoch);
        err = next_command(epoch, &command);
        if (!err) {
            epoch->ended = command.kind == COMMAND_END;
            err = obey(epoch, &command);
        }
        free(command.bytes);
    }
    cn_session_leave(session);
    cn_mailbox_drop_errand(epoch->box);
    return err == CN_EAGAIN ? CN_OK : err;
}
