// Tells boards about the run, and judges their updates.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/tally.h"
#include "aggregator/merge/admission.h"
#include "aggregator/run/asynchronous.h"
#include "aggregator/run/measured.h"
#include "aggregator/run/run_private.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

static enum cn_round_state round_state(const struct cn_run *run)
{
    if (run->phase == CN_RUN_ENDED)
        return CN_ROUND_ENDED;
    return run->phase == CN_RUN_OPEN ? CN_ROUND_OPEN : CN_ROUND_CLOSING;
}

static cn_err is_invited(struct cn_run *run, uint32_t round, const char *group, bool *invited)
{
    return cn_job_is_async(run->config.job)
               ? cn_async_invites(run, group, invited)
               : cn_ledger_is_selected(run->config.ledger, round, group, invited);
}

// Finds the newest version that went back to an earlier one, as far as the group is concerned: by a
// rollback, or by a refusal of what the group had a part in. What the group kept of a refused
// update is the rest of a step that was never taken.
static cn_err find_forget(const struct cn_run *run, const char *group, uint64_t *forget)
{
    uint32_t refused = 0;
    cn_err err = run->refused > run->rolled_back
                     ? cn_ruling_refused(run->config.ledger, group, &refused)
                     : CN_OK;
    *forget = refused > run->rolled_back ? refused : run->rolled_back;
    return err;
}

cn_err cn_run_describe(struct cn_run *run, const char *group, uint64_t now_ms,
                       struct cn_round_info *info)
{
    const struct cn_model *newest = cn_model_store_newest(run->config.models);
    const struct cn_ledger_identity *identity = cn_ledger_identity(run->config.ledger);
    struct cn_ledger_outcome outcome;

    *info = (struct cn_round_info){
        .run = identity->run,
        .lineage = identity->lineage,
        .state = round_state(run),
        .round = run->round,
        .version = newest->number,
        .version_size = newest->size,
        .delta_size = newest->delta_size,
    };
    if (run->phase == CN_RUN_OPEN && run->deadline_ms > now_ms)
        info->remaining_ms = run->deadline_ms - now_ms;
    memcpy(info->version_digest, newest->digest, CN_DIGEST_SIZE);
    memcpy(info->parent, newest->parent, CN_DIGEST_SIZE);
    memcpy(info->delta_digest, newest->delta_digest, CN_DIGEST_SIZE);
    const struct cn_roster_group *found = cn_roster_find_group(run->config.roster, group);
    uint32_t served = found ? found->served : newest->number;
    if (run->phase == CN_RUN_OPEN)
        info->control = run->control;
    info->key_epoch = found ? found->key_epoch : 0;
    info->group_boards = found ? found->boards : 0;
    cn_model_store_chain(run->config.models, served, &info->chain);
    cn_model_store_snapshot(run->config.models, served, &info->snapshot);
    cn_err err = find_forget(run, group, &info->forget);
    if (cn_job_is_async(run->config.job))
        info->oldest = cn_async_oldest(run);
    if (!err && run->phase == CN_RUN_OPEN)
        err = is_invited(run, run->round, group, &info->invited);
    if (!err)
        err = cn_ledger_outcome(run->config.ledger, group, &outcome);
    if (err)
        return err;
    info->decided_round = outcome.round;
    info->decided_accepted = outcome.accepted;
    memcpy(info->decided_digest, outcome.digest, CN_DIGEST_SIZE);
    return CN_OK;
}

// Sentences for the board; monitors get the number. For CN_REFUSAL_FRAME each case has its own.
static const char *const refusals[CN_REFUSAL_COUNT] = {
    [CN_REFUSAL_OTHER] = "another update of this group counts for the round",
    [CN_REFUSAL_RUN] = "the update belongs to another run",
    [CN_REFUSAL_NOT_OPEN] = "the round is not open yet",
    [CN_REFUSAL_NOT_INVITED] = "the group is not invited to this round",
    [CN_REFUSAL_BASE] = "the update is relative to another version",
};

const char *cn_run_refusal_text(enum cn_run_refusal why)
{
    return refusals[why];
}

static void decide(struct cn_upload_status *status, enum cn_verdict verdict, const char *reason)
{
    status->decided = true;
    status->verdict = verdict;
    snprintf(status->reason, sizeof(status->reason), "%s", reason);
}

static void refuse(struct cn_upload_status *status, enum cn_run_refusal why,
                   enum cn_run_refusal *refusal)
{
    *refusal = why;
    decide(status, CN_VERDICT_REJECTED, refusals[why]);
}

// Logs and counts an update that is late or, for the reason refusal, rejected. The lines are
// limited, so that a board that sends only invalid updates cannot fill the log.
static void note_refusal(struct cn_run *run, const char *group,
                         const struct cn_declare_request *declared,
                         const struct cn_upload_status *status, enum cn_run_refusal refusal)
{
    bool late = status->verdict == CN_VERDICT_LATE;
    if (declared->run == CN_RUN_MEASUREMENT || !status->decided ||
        status->verdict == CN_VERDICT_ACCEPTED)
        return;
    if (late) {
        run->counts.late++;
    } else {
        run->counts.rejected++;
        run->counts.refused[refusal]++;
    }
    cn_log_within(cn_log_quota_of(late ? &run->late : &run->rejected, group), cn_platform_now_ms(),
                  late ? CN_LOG_INFO : CN_LOG_WARN, "run",
                  "round %u: an update of group %s is %s: %s", declared->round, group,
                  late ? "late" : "rejected", status->reason);
    // A round that has not begun is not counted: its number would hide the rejections of the rounds
    // before it.
    if (late || declared->round > run->round)
        return;
    cn_err err = cn_tally_reject(run->config.ledger, group, declared->round, status->reason);
    if (err)
        cn_log(CN_LOG_WARN, "run", "a rejection is not counted: %s", cn_err_text(err));
}

// An accepted contribution decides: the same frame gets the same answer again, and any other frame
// is rejected.
static cn_err judge_against_accepted(struct cn_run *run, const char *group,
                                     const struct cn_declare_request *declared,
                                     struct cn_upload_status *status, enum cn_run_refusal *refusal)
{
    struct cn_ledger_contribution accepted;
    cn_err err = cn_ledger_find_contribution(run->config.ledger, declared->round, group, &accepted);

    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    memcpy(status->accepted, accepted.digest, CN_DIGEST_SIZE);
    if (memcmp(accepted.digest, declared->digest, CN_DIGEST_SIZE) == 0) {
        decide(status, CN_VERDICT_ACCEPTED, "");
        run->counts.repeated++;
    } else {
        refuse(status, CN_REFUSAL_OTHER, refusal);
    }
    return CN_OK;
}

static void judge_round(const struct cn_run *run, const struct cn_declare_request *declared,
                        bool invited, struct cn_upload_status *status, enum cn_run_refusal *refusal)
{
    // Exactly a quorum counts, also when several uploads complete before the round is closed.
    bool open = run->phase == CN_RUN_OPEN && run->accepted < cn_job_updates_needed(run->config.job);
    bool awaited = run->phase == CN_RUN_GATHER;
    const struct cn_model *newest = cn_model_store_newest(run->config.models);
    if (declared->round < run->round || (declared->round == run->round && !open && !awaited))
        decide(status, CN_VERDICT_LATE, "the round is over");
    else if (declared->round > run->round || awaited)
        refuse(status, CN_REFUSAL_NOT_OPEN, refusal);
    else if (!invited)
        refuse(status, CN_REFUSAL_NOT_INVITED, refusal);
    else if (memcmp(declared->base, newest->digest, CN_DIGEST_SIZE) != 0)
        refuse(status, CN_REFUSAL_BASE, refusal);
}

static bool is_drained(const struct cn_run *run, const char *group)
{
    const struct cn_roster_group *found = cn_roster_find_group(run->config.roster, group);

    return found && found->drained;
}

static cn_err judge(struct cn_run *run, const char *group,
                    const struct cn_declare_request *declared, struct cn_upload_status *status,
                    enum cn_run_refusal *refusal)
{
    bool invited;

    memset(status, 0, sizeof(*status));
    bool measures = declared->run == CN_RUN_MEASUREMENT;
    if (!measures && declared->run != cn_ledger_identity(run->config.ledger)->run)
        refuse(status, CN_REFUSAL_RUN, refusal);
    if (measures && is_drained(run, group)) // its boards must not take room from those that train
        decide(status, CN_VERDICT_REJECTED, "the group is drained");
    if (measures || status->decided)
        return CN_OK;
    cn_err err = judge_against_accepted(run, group, declared, status, refusal);
    if (err || status->decided)
        return err;
    if (cn_job_is_async(run->config.job))
        return cn_async_judge(run, group, declared, status, refusal);
    err = is_invited(run, declared->round, group, &invited);
    if (!err)
        judge_round(run, declared, invited, status, refusal);
    return err;
}

cn_err cn_run_judge(struct cn_run *run, const char *group,
                    const struct cn_declare_request *declared, struct cn_upload_status *status)
{
    enum cn_run_refusal refusal = CN_REFUSAL_FRAME;
    cn_err err = judge(run, group, declared, status, &refusal);

    if (!err)
        note_refusal(run, group, declared, status, refusal);
    return err;
}

void cn_run_refuse(struct cn_run *run, const char *group, const struct cn_declare_request *declared,
                   const char *reason)
{
    const struct cn_declare_request unread = {.run = cn_ledger_identity(run->config.ledger)->run,
                                              .round = run->round};
    struct cn_upload_status status = {0};

    decide(&status, CN_VERDICT_REJECTED, reason);
    note_refusal(run, group, declared ? declared : &unread, &status, CN_REFUSAL_FRAME);
}

void cn_run_note_odd(struct cn_run *run, const char *group, const char *what)
{
    cn_log_within(cn_log_quota_of(&run->rejected, group), cn_platform_now_ms(), CN_LOG_WARN, "run",
                  "round %u: group %s: %s", run->round, group, what);
}

uint32_t cn_run_later_s(const struct cn_run *run)
{
    return cn_async_later_s(run);
}

static void describe_contribution(const struct cn_spooled *upload, uint64_t weight, uint32_t boards,
                                  uint32_t version, struct cn_ledger_contribution *contribution)
{
    const struct cn_declare_request *declared = &upload->declared;

    *contribution = (struct cn_ledger_contribution){
        .round = declared->round,
        .version = version,
        .size = declared->size,
        .weight = weight,
        .boards = boards,
        .steps = declared->steps,
        .control_epoch = declared->control_epoch,
        .control_count = declared->control_count,
        .down_bps = declared->down_bps < INT64_MAX ? declared->down_bps : INT64_MAX,
        .held_out_loss = declared->held_out_loss,
        .held_out_correct = declared->held_out_correct,
        .held_out_count = declared->held_out_count,
        .measures = declared->measures,
        .train_loss = declared->train_loss,
    };
    memcpy(contribution->digest, declared->digest, CN_DIGEST_SIZE);
    snprintf(contribution->group, sizeof(contribution->group), "%s", upload->group);
    snprintf(contribution->board, sizeof(contribution->board), "%s", upload->board);
}

// Only people use this number, so an error has no consequence.
static void note_attendance(struct cn_run *run, const struct cn_ledger_contribution *contribution,
                            uint32_t boards)
{
    if (boards > 1 && cn_tally_attend(run->config.ledger, contribution->group, contribution->round,
                                      boards) != CN_OK)
        cn_log(CN_LOG_DEBUG, "run", "the boards of %s are not counted", contribution->group);
}

// Writes first the file, then the ledger, then the answer: what was acknowledged is durable. Takes
// the upload, also on an error: the board sends it again.
static cn_err record(struct cn_run *run, struct cn_spooled *upload, uint64_t weight,
                     struct cn_upload_status *status)
{
    struct cn_ledger_contribution contribution;
    const struct cn_roster_group *group = cn_roster_find_group(run->config.roster, upload->group);
    uint32_t boards = cn_roster_count(run->config.roster, upload->group, upload->declared.members,
                                      upload->declared.member_count);

    describe_contribution(upload, weight, group ? group->boards : 1,
                          cn_job_is_async(run->config.job) ? run->round : 0, &contribution);
    uint64_t since_us = cn_platform_now_us();
    cn_err err = cn_measured_bound(run->config.ledger, group, &contribution);
    if (err)
        cn_spool_drop(run->config.spool, upload);
    else
        err = cn_spool_keep(run->config.spool, upload);
    if (!err)
        err = cn_ledger_accept(run->config.ledger, &contribution);
    if (err)
        return err;
    run->accepted++;
    run->counts.accepted++;
    run->counts.stale += contribution.version > contribution.round;
    run->counts.behind +=
        contribution.version > contribution.round ? contribution.version - contribution.round : 0;
    cn_histogram_add(&run->counts.commit, (double)(cn_platform_now_us() - since_us) / 1e6);
    note_attendance(run, &contribution, boards);
    memcpy(status->accepted, contribution.digest, CN_DIGEST_SIZE);
    decide(status, CN_VERDICT_ACCEPTED, "");
    cn_log(CN_LOG_DEBUG, "run", "round %u: accepted %" PRIu64 " bytes of %s, %" PRIu64 " samples",
           contribution.round, contribution.size, contribution.group, weight);
    return CN_OK;
}

static void reject(struct cn_run *run, struct cn_spooled *upload, const char *reason,
                   struct cn_upload_status *status)
{
    decide(status, CN_VERDICT_REJECTED, reason);
    note_refusal(run, upload->group, &upload->declared, status, CN_REFUSAL_FRAME);
    cn_spool_drop(run->config.spool, upload);
}

cn_err cn_run_accept(struct cn_run *run, struct cn_spooled *upload, struct cn_upload_status *status)
{
    cn_err err = cn_run_judge(run, upload->group, &upload->declared, status);

    if (err == CN_EBUSY)
        return err; // the upload waits for the next buffer
    if (err || status->decided) {
        cn_spool_drop(run->config.spool, upload);
        return err;
    }
    if (upload->declared.run == CN_RUN_MEASUREMENT) {
        reject(run, upload, "a measurement, of which nothing is kept", status);
        return CN_OK;
    }
    uint8_t *frame;
    err = cn_spool_read(run->config.spool, upload, &frame);
    if (err) {
        if (err != CN_EAGAIN)
            cn_spool_drop(run->config.spool, upload);
        return err;
    }
    struct cn_diag diag;
    uint64_t weight = 0;
    cn_diag_init(&diag);
    err = cn_admission_check(upload->declared.round == run->round ? run->config.job : NULL,
                             cn_model_store_layout(run->config.models), upload, frame, &diag,
                             &weight);
    free(frame);
    if (!err)
        err = cn_admission_check_steps(run->config.job, upload, &diag);
    if (err) {
        reject(run, upload, diag.count ? cn_diag_first(&diag) : cn_err_text(err), status);
        return CN_OK;
    }
    uint64_t counted = cn_admission_cap(
        run->config.job, cn_roster_find_group(run->config.roster, upload->group), weight);
    if (counted < weight) {
        run->counts.capped++;
        cn_log(CN_LOG_WARN, "run",
               "round %u: group %s says %" PRIu64 " samples and counts for %" PRIu64
               ", the most that the job and its enrolment allow",
               upload->declared.round, upload->group, weight, counted);
    }
    return record(run, upload, counted, status);
}
