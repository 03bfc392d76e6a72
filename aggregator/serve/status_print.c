#include "aggregator/serve/status_print.h"

#include <inttypes.h>

#include "aggregator/merge/downlink.h"
#include "aggregator/run/measured.h"
#include "aggregator/serve/status_boards.h"
#include "aggregator/serve/status_groups.h"
#include "aggregator/show/invitable.h"

#define NEWS 20 // versions after which a decision is no news

static const char *describe_phase(const struct cn_status_report *report)
{
    static const char *const states[] = {"open", "closing", "merged"};
    if (report->view.end_reason)
        return "ended";
    if (report->view.round.number == 0)
        return report->live->running ? "waiting for groups" : "not begun";
    return states[report->view.round.state];
}

// Prints the bytes in one direction. told is what the last program counted, up to at most a second
// before its end. in_ledger is the count at the newest version, for when the file is gone.
static void print_bytes(FILE *stream, const char *way, const struct cn_link_bytes *told,
                        uint64_t in_ledger)
{
    fprintf(stream, "\"bytes_%s\":%" PRIu64 ",\"payload_%s\":%" PRIu64 ",\"wire_%s\":%" PRIu64, way,
            told->messages > in_ledger ? told->messages : in_ledger, way, told->payload, way,
            told->wire);
}

static bool is_news(const struct cn_status_report *report, uint32_t version)
{
    return version + NEWS > report->view.version.number;
}

// Prints what the gate and people decided about the newest versions.
static cn_err print_rulings(const struct cn_status_report *report)
{
    struct cn_ruling ruling;
    cn_err err = cn_ruling_newest(report->ledger, CN_RULING_ROLLBACK, &ruling);
    if (!err && is_news(report, ruling.version))
        fprintf(report->stream, "version %u went back to version %u: %s\n", ruling.version,
                ruling.source, ruling.reason);
    if (!err || err == CN_ENOTFOUND)
        err = cn_rulings_waiting_rollback(report->ledger, &ruling);
    if (!err)
        fprintf(report->stream, "a rollback to version %u waits: %s\n", ruling.source,
                ruling.reason);
    if (!err || err == CN_ENOTFOUND)
        err = cn_ruling_newest(report->ledger, CN_RULING_REFUSED, &ruling);
    if (!err && is_news(report, ruling.version))
        fprintf(report->stream, "the gate refused version %u: %s\n", ruling.version, ruling.reason);
    if (report->streak >= CN_RULING_ALARM)
        fprintf(report->stream,
                "ALARM: the gate refused the newest %u versions in a row: a group, the "
                "data or the limit is wrong\n",
                report->streak);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

// Writes where the round is, and why the run is over. The first line says that instead if the
// program does not run.
static void print_round(const struct cn_status_report *report)
{
    const char *reason = report->live->running ? report->view.end_reason : NULL;
    fprintf(report->stream, "round %u of %u (%s%s%s): %u of %u updates, %u group%s invited\n",
            report->view.round.number, report->job->rounds, describe_phase(report),
            reason ? ": " : "", reason ? reason : "", report->view.accepted,
            cn_job_updates_needed(report->job), report->view.invited,
            report->view.invited == 1 ? "" : "s");
}

static void print_settings(const struct cn_status_report *report)
{
    if (report->settings > 1)
        fprintf(report->stream, "the settings that hold were changed for round %u\n",
                report->settings);
    if (report->next_settings)
        fprintf(report->stream, "other settings hold from round %u on\n", report->next_settings);
}

// Prints how versions go down, where the measured links decide.
static cn_err print_downlink(const struct cn_status_report *report)
{
    struct cn_downlink downlink;
    char text[CN_DOWNLINK_TEXT];
    uint32_t since = 0;
    if (report->json || report->job->down.mode != CN_UPDATE_AUTO)
        return CN_OK;
    cn_err err = cn_downlinks_newest(report->ledger, &downlink);
    if (!err)
        err = cn_downlinks_since(report->ledger, &since);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    cn_downlink_text(&downlink, since, text);
    fprintf(report->stream, "%s\n", text);
    return CN_OK;
}

// Prints what people asked of the run (docs/steer-a-run.md).
static void print_steering(const struct cn_status_report *report)
{
    const struct cn_round_view *view = &report->view;
    if (view->steering.pause == CN_RUN_PAUSE_NOW)
        fprintf(report->stream, "paused: the open round is not closed until `resume`\n");
    else if (view->steering.pause)
        fprintf(report->stream, "paused: no other round is opened until `resume`\n");
    if (view->steering.leaving)
        fprintf(report->stream, "draining: the aggregator ends after this round\n");
    if (report->live->settling_ms)
        fprintf(report->stream,
                "enough groups are here: the round opens in %" PRIu64
                " s, or when the others come\n",
                (report->live->settling_ms + 999) / 1000);
    for (size_t i = 0; i < view->drained_count; i++)
        fprintf(report->stream, "group %s is drained: it is not invited until `resume`\n",
                view->drained[i]);
    if (view->steered.extended_ms)
        fprintf(report->stream, "round %u was extended by %" PRIu64 " s\n", view->round.number,
                view->steered.extended_ms / 1000);
    if (view->steered.closed_with)
        fprintf(report->stream, "round %u was closed by a person with %u updates\n",
                view->round.number, view->steered.closed_with);
}

static void print_run(const struct cn_status_report *report)
{
    const struct cn_steering *steering = &report->view.steering;
    const struct cn_ledger_version *version = &report->view.version;
    const struct cn_score *score = &report->view.progress.newest_score;
    uint64_t run = cn_ledger_identity(report->ledger)->run;
    char digest[2 * CN_DIGEST_SIZE + 1], measures[CN_SCORE_TEXT], lag[CN_SCORE_LAG],
        few[CN_INVITABLE_ENROLLED_TEXT], of[32] = "";
    cn_hex(digest, version->digest, CN_DIGEST_SIZE);
    if (report->json) {
        fprintf(report->stream,
                "{\"run\":\"%016" PRIx64
                "\",\"running\":%s,\"round\":%u,\"rounds\":%u,\"state\":\"%s\",\"selected\":%u,"
                "\"accepted\":%u,\"quorum\":%u,\"version\":%u,\"digest\":\"%s\"",
                run, report->live->running ? "true" : "false", report->view.round.number,
                report->job->rounds, describe_phase(report), report->view.invited,
                report->view.accepted, cn_job_updates_needed(report->job), version->number, digest);
        cn_score_text(score, true, measures);
        if (score->known)
            fprintf(report->stream, ",\"measured\":%u,\"accuracy\":%.6f,\"loss\":%.6f%s",
                    report->view.progress.newest_known, score->accuracy, score->loss, measures);
        fprintf(report->stream, ",\"remaining_ms\":%" PRIu64 ",", report->live->remaining_ms);
        print_bytes(report->stream, "in", &report->live->traffic.in, version->bytes_in);
        fputc(',', report->stream);
        print_bytes(report->stream, "out", &report->live->traffic.out, version->bytes_out);
        fprintf(report->stream,
                ",\"settings\":%u,\"next_settings\":%u,\"refused_in_a_row\":%u,\"paused\":\"%s\","
                "\"leaving\":%s}\n",
                report->settings, report->next_settings, report->streak,
                steering->pause == CN_RUN_PAUSE_NOW ? "now"
                : steering->pause                   ? "rounds"
                                                    : "",
                steering->leaving ? "true" : "false");
        return;
    }
    fprintf(report->stream, "run %016" PRIx64 ", %s\n", run,
            report->live->running     ? "the aggregator is running"
            : report->view.end_reason ? report->view.end_reason
                                      : "the aggregator is not running");
    print_round(report);
    print_settings(report);
    print_steering(report);
    fprintf(report->stream, "version %u (%.12s)", version->number, digest);
    cn_score_text(score, false, measures);
    if (report->view.progress.newest_known != version->number)
        snprintf(of, sizeof(of), ", of version %u", report->view.progress.newest_known);
    if (score->known && report->job->loss == CN_LOSS_CROSS_ENTROPY)
        fprintf(report->stream, "; newest measurement%s: accuracy %.3f, loss %.4f%s", of,
                score->accuracy, score->loss, measures);
    else if (score->known)
        fprintf(report->stream, "; newest measurement%s: loss %.4f%s", of, score->loss, measures);
    cn_score_lag_text(&report->view.progress, version->number, report->view.end_reason != NULL,
                      lag);
    if (lag[0])
        fprintf(report->stream, "\n%s", lag);
    if (report->view.groups < cn_job_updates_needed(report->job)) {
        cn_invitable_enrolled_text(cn_job_needed_word(report->job),
                                   cn_job_updates_needed(report->job), report->view.groups, few);
        fprintf(report->stream, "\n%s", few);
    }
    fprintf(report->stream, "\n\n  %-16s %-16s %-12s %-34s %s\n", "board", "group", "heard",
            "hardware", "status");
}

static void print_cuts(const struct cn_status_report *report)
{
    const struct cn_merge_cuts *cuts = &report->live->cuts;
    if (report->live->warning[0] && !report->json)
        fprintf(report->stream, "%s\n", report->live->warning);
    if (cuts->update_count && !report->json)
        fprintf(report->stream, "round %u, %u of its updates: %s\n", cuts->round,
                cuts->update_count, cuts->text);
}

// Prints which measurements stood out in the round of the newest version.
static void print_outlier(void *context, const char *group, const char *text)
{
    const struct cn_status_report *report = context;
    (void)group;
    fprintf(report->stream, "%s\n", text);
}

static cn_err print_outliers(struct cn_status_report *report, uint32_t merged)
{
    if (report->json || merged == 0)
        return CN_OK;
    return cn_measured_outliers(report->ledger, merged, print_outlier, report);
}

// Finds the round from which on the present settings hold, and that of newer settings.
static cn_err find_settings(struct cn_status_report *report)
{
    struct cn_ledger_setting row;
    uint32_t round = report->view.round.number ? report->view.round.number : 1;
    cn_err err = cn_ledger_find_setting(report->ledger, round, &row);
    if (!err)
        report->settings = row.from_round;
    cn_ledger_setting_deinit(&row);
    if (!err)
        err = cn_ledger_find_setting(report->ledger, UINT32_MAX, &row);
    if (!err && row.from_round > report->settings)
        report->next_settings = row.from_round;
    if (!err)
        cn_ledger_setting_deinit(&row);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static cn_err print_all(struct cn_status_report *report)
{
    uint32_t merged = report->view.version.number;
    print_cuts(report);
    cn_err err = report->json ? CN_OK : print_rulings(report);
    if (!err)
        err = print_outliers(report, merged);
    if (err)
        return err;
    print_run(report);
    err = print_downlink(report);
    if (err)
        return err;
    err = cn_ledger_boards(report->ledger, cn_status_print_board, report);
    return err ? err
               : cn_status_print_groups(report->ledger, merged, cn_job_is_async(report->job),
                                        report->json, report->stream);
}

cn_err cn_status_print(struct cn_ledger *ledger, const struct cn_job *job,
                       const struct cn_live_state *live, uint64_t now_ms, bool json, FILE *stream)
{
    struct cn_status_report report = {.ledger = ledger,
                                      .job = job,
                                      .live = live,
                                      .now_ms = now_ms,
                                      .json = json,
                                      .stream = stream};
    cn_err err = cn_round_view_load(ledger, job, NULL, &report.view);
    if (!err)
        err = find_settings(&report);
    if (!err)
        err = cn_ruling_streak(ledger, &report.streak);
    if (!err)
        err = print_all(&report);
    cn_round_view_deinit(&report.view);
    return err;
}
