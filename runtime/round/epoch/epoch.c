#include "runtime/round/epoch/epoch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/backend.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"
#include "runtime/round/epoch/epoch_command.h"
#include "runtime/round/epoch/epoch_control.h"
#include "runtime/round/epoch/epoch_end.h"
#include "runtime/round/epoch/epoch_heal.h"
#include "runtime/round/epoch/epoch_obey.h"
#include "runtime/round/epoch/epoch_say.h"
#include "runtime/round/epoch/round_file.h"
#include "runtime/round/round.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update.h"
#include "runtime/update/version.h"

#define IDLE_MS 300   // time between two IDLE commands; well below a group's timeout
#define RETRY_MS 1000 // wait before a version that could not be used is fetched again

void cn_epoch_tag(const struct cn_session *session, struct cn_state_tag *tag)
{
    const struct cn_checkpoint *held = cn_session_held(session);

    *tag = (struct cn_state_tag){
        .lineage = held->lineage,
        .run = held->run,
        // A held base counts as part of the next round: it is newer than any state of the round
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

void cn_epoch_tell_progress(struct cn_epoch *epoch)
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
    cn_session_fill_progress(epoch->session, &progress);
    cn_mailbox_put_progress(epoch->box, &progress);
    epoch->moved_ms = cn_platform_now_ms();
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
                         struct cn_epoch_command *command)
{
    struct cn_session_version version = {
        .number = fetch->number,
        .bytes = answer->data,
        .size = answer->size,
        .delta = fetch->delta,
        .forget = news->forget <= news->version ? (uint32_t)news->forget : 0,
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
        cn_scratch_free(answer->data);
        return;
    }
    epoch->avoid_delta = false;
    *command = (struct cn_epoch_command){.kind = CN_EPOCH_BASE,
                                         .base = {.delta = version.delta,
                                                  .number = version.number,
                                                  .forget = version.forget,
                                                  .size = version.size,
                                                  .bytes = answer->data}};
    memcpy(command->base.digest, version.digest, CN_DIGEST_SIZE);
}

// Returns whether only a full version has all tensors that this board needs: a snapshot lacks those
// that never travel.
static bool lacks_staying(const struct cn_epoch *epoch)
{
    return cn_session_held(epoch->session)->phase == CN_PHASE_EMPTY &&
           cn_local_tensors_stay(cn_session_layout(epoch->session));
}

// Takes version 0 from a file of this board instead of the gateway. The blobs from there to the
// newest version are fetched next.
static bool plan_base(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    const char *file = cn_session_get_config(epoch->session)->settings->base;
    struct cn_session_version version;
    uint8_t *bytes;
    struct cn_diag diag;
    cn_err err;

    if (epoch->base_failed || !cn_session_wants_base(epoch->session))
        return false;
    cn_diag_init(&diag);
    err = cn_session_read_base(epoch->session, &diag, &version, &bytes);
    if (err) {
        epoch->base_failed = true;
        cn_log(CN_LOG_WARN, "epoch", "version 0 is fetched, not taken from %s: %s", file,
               diag.count ? cn_diag_first(&diag) : cn_err_text(err));
        return false;
    }
    cn_log(CN_LOG_INFO, "epoch", "version 0 is taken from %s", file);
    *command = (struct cn_epoch_command){.kind = CN_EPOCH_BASE,
                                         .base = {.size = version.size, .bytes = bytes}};
    memcpy(command->base.digest, version.digest, CN_DIGEST_SIZE);
    return true;
}

static cn_err plan_fetch(struct cn_epoch *epoch, const struct cn_round_info *news,
                         struct cn_epoch_command *command)
{
    if (plan_base(epoch, command))
        return CN_OK;

    const struct cn_checkpoint *held = cn_session_held(epoch->session);
    bool asked = cn_mailbox_requested(epoch->box, CN_ERRAND_FETCH);
    struct cn_errand_answer answer;
    struct cn_round_fetch fetch;

    cn_round_choose_fetch(held, news, epoch->avoid_delta || lacks_staying(epoch), &fetch);
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
    const struct cn_checkpoint *held = cn_session_held(epoch->session);
    struct cn_errand_request request = {
        .kind = CN_ERRAND_UPLOAD,
        .upload =
            {
                .run = held->run,
                .round = held->round,
                .frame = held->frame,
                .size = held->frame_size,
                .steps = held->steps,
                .control_epoch = held->control.epoch,
                .control_count = held->control.count,
                .fresh = epoch->fresh,
            },
    };

    epoch->fresh = false;
    cn_session_fill_measured(epoch->session, &request.upload);
    memcpy(request.upload.digest, held->frame_digest, CN_DIGEST_SIZE);
    memcpy(request.upload.base, held->base_digest, CN_DIGEST_SIZE);
    return cn_mailbox_request(epoch->box, &request);
}

static void plan_begin(struct cn_epoch *epoch, const struct cn_round_info *news,
                       const struct cn_decision *newest, struct cn_epoch_command *command)
{
    struct cn_link_path_stats link;

    cn_mailbox_link(epoch->box, &link);
    command->kind = CN_EPOCH_BEGIN;
    cn_session_plan(epoch->session, news->round, &link, news->remaining_ms, &command->begin);
    command->begin.newest = *newest;
}

// Returns the share of the round's deadline that is left; 0 for a closed round.
static double spare_of(struct cn_epoch *epoch)
{
    uint64_t deadline_ms = cn_session_get_config(epoch->session)->job->deadline_ms;
    struct cn_round_info news;

    if (!deadline_ms || !cn_mailbox_news(epoch->box, &news) ||
        news.round != cn_session_held(epoch->session)->round)
        return 0;
    return (double)news.remaining_ms / (double)deadline_ms;
}

static void plan_decision(struct cn_epoch *epoch, enum cn_epoch_command_kind kind,
                          const struct cn_decision *decision, struct cn_epoch_command *command)
{
    command->kind = kind;
    command->decision = *decision;
    command->decision.spare = spare_of(epoch);
}

// Plans the next command from the receipt for the outbox. A refusal names the update that counts
// instead.
static void plan_receipt(struct cn_epoch *epoch, const struct cn_errand_answer *answer,
                         struct cn_epoch_command *command)
{
    static const uint8_t nothing[CN_DIGEST_SIZE];
    struct cn_decision decision = {.verdict = answer->verdict};

    if (memcmp(answer->accepted, nothing, CN_DIGEST_SIZE) != 0)
        decision.round = cn_session_held(epoch->session)->round;
    memcpy(decision.digest, answer->accepted, CN_DIGEST_SIZE);
    memcpy(epoch->refusal, answer->reason, sizeof(epoch->refusal));
    plan_decision(epoch, CN_EPOCH_DECIDE, &decision, command);
}

static cn_err plan_send(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    struct cn_errand_answer answer;
    cn_err err = CN_OK;

    if (cn_mailbox_take_answer(epoch->box, CN_ERRAND_UPLOAD, &answer)) {
        plan_receipt(epoch, &answer, command);
        cn_scratch_free(answer.data);
        return CN_OK;
    }
    if (!cn_mailbox_requested(epoch->box, CN_ERRAND_UPLOAD))
        err = want_upload(epoch);
    if (!err && cn_session_wants_copies(epoch->session))
        command->kind = CN_EPOCH_COPY; // while the owner sends the update
    return err;
}

// Returns whether an action needs a whole model, or all of what waits, which too few members for a
// chain do not have.
static bool needs_chain(const struct cn_epoch *epoch, enum cn_round_action action)
{
    return action == CN_DO_FETCH || action == CN_DO_BEGIN || action == CN_DO_STEP ||
           (action == CN_DO_ABANDON && cn_session_held(epoch->session)->waiting.set);
}

static cn_err plan_command(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    struct cn_round_info news;
    struct cn_round_plan plan;
    bool heard = cn_mailbox_news(epoch->box, &news);

    *command = (struct cn_epoch_command){.kind = CN_EPOCH_IDLE};
    if (cn_mailbox_has_reform_request(epoch->box)) {
        command->kind = CN_EPOCH_REFORM;
        return CN_OK;
    }
    if (!heard && cn_epoch_is_over(epoch)) {
        command->kind = CN_EPOCH_END;
        return CN_OK;
    }
    cn_round_next(cn_session_held(epoch->session), heard ? &news : NULL, &plan);
    if (cn_session_waits(epoch->session) && needs_chain(epoch, plan.action))
        return CN_OK;
    if (plan.action == CN_DO_BEGIN && cn_session_wants_layout(epoch->session)) {
        command->kind = CN_EPOCH_REFORM;
        return CN_OK;
    }
    switch (plan.action) {
    case CN_DO_WAIT:
        return CN_OK;
    case CN_DO_RESET:
        command->kind = CN_EPOCH_RESET;
        return CN_OK;
    case CN_DO_FETCH:
        return plan_fetch(epoch, &news, command);
    case CN_DO_BEGIN:
        if (cn_epoch_wants_control(epoch, &news))
            return cn_epoch_plan_control(epoch, &news, command);
        plan_begin(epoch, &news, &plan.decision, command);
        return CN_OK;
    case CN_DO_STEP:
        command->kind = CN_EPOCH_STEPS;
        command->steps.bucket = cn_session_bucket(epoch->session);
        command->steps.wire = cn_session_get_config(epoch->session)->settings->group.wire;
        return CN_OK;
    case CN_DO_ABANDON:
        plan_decision(epoch, CN_EPOCH_ABANDON, &plan.decision, command);
        return CN_OK;
    case CN_DO_SEND:
        return plan_send(epoch, command);
    case CN_DO_DECIDE:
        if (cn_session_wants_copies(epoch->session)) {
            command->kind = CN_EPOCH_COPY;
            return CN_OK;
        }
        cn_mailbox_drop_errand(epoch->box); // its receipt is no longer needed
        epoch->refusal[0] = '\0';
        plan_decision(epoch, CN_EPOCH_DECIDE, &plan.decision, command);
        return CN_OK;
    case CN_DO_END:
        command->kind = CN_EPOCH_END;
        return CN_OK;
    }
    return CN_OK;
}

static cn_err lead(struct cn_epoch *epoch, struct cn_epoch_command *command)
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
        if (command->kind != CN_EPOCH_IDLE && (command->kind != CN_EPOCH_END || !epoch->ended))
            return CN_OK;
        now = cn_platform_now_ms();
        if (now >= idle_until)
            return CN_OK;
        cn_mailbox_wait(epoch->box, (uint32_t)(idle_until - now));
    }
}

static cn_err next_command(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    struct cn_collective *collective = epoch->collective;
    bool leads = epoch->view.view.rank == 0;
    uint8_t bytes[CN_EPOCH_COMMAND_SIZE] = {0};
    cn_err err;

    if (leads) {
        err = lead(epoch, command);
        if (err)
            return err;
        cn_epoch_command_put(command, bytes);
    }
    err = cn_broadcast(collective, 0, bytes, sizeof(bytes));
    if (!err && !leads)
        err = cn_epoch_command_get(bytes, command);
    return err;
}

cn_err cn_epoch_run(struct cn_epoch *epoch)
{
    struct cn_session *session = epoch->session;
    uint64_t waits_us;
    cn_err err;

    err = cn_session_join(session, epoch->collective, &epoch->view.view);
    if (!err)
        err = cn_epoch_heal(epoch);
    if (!err)
        err = cn_epoch_share_end(epoch);
    if (!err)
        err = cn_session_exchange_facts(session, epoch->collective, &epoch->view.view);
    if (!err && cn_session_held(session)->phase == CN_PHASE_SEND)
        err = cn_session_secure_outbox(session, epoch->collective);
    waits_us = cn_platform_now_us();
    while (!err) {
        struct cn_epoch_command command = {0};

        cn_epoch_tell_progress(epoch);
        err = next_command(epoch, &command);
        if (!err) {
            epoch->ended = command.kind == CN_EPOCH_END;
            epoch->over |= epoch->ended;
            err = cn_epoch_obey(epoch, &command, &waits_us);
        }
        if (command.kind == CN_EPOCH_BASE)
            cn_scratch_free(command.base.bytes);
        if (command.kind == CN_EPOCH_CONTROL)
            cn_scratch_free(command.control.bytes);
    }
    cn_session_leave(session);
    cn_mailbox_drop_errand(epoch->box);
    return err == CN_EAGAIN ? CN_OK : err;
}
