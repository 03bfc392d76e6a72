#include "aggregator/serve/report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "aggregator/ledger/tally.h"
#include "aggregator/show/bytes_text.h"
#include "runtime/command/terminal/screen.h"
#include "runtime/command/terminal/wrap.h"

#define LINE_MS 250

void cn_report_init(struct cn_report *report, FILE *stream, struct cn_ledger *ledger,
                    const struct cn_job *job, uint32_t next, uint64_t now_ms)
{
    *report = (struct cn_report){
        .stream = stream,
        .ledger = ledger,
        .job = job,
        .live = cn_screen_is_live(stream),
        .next = next,
        .first = next,
        .start_ms = now_ms,
    };
    fprintf(stream, "%7s  %8s  %9s  %6s  %7s  %10s  %10s  %8s\n", "version", "accuracy", "loss",
            "boards", "updates", "msgs up", "msgs down", "time");
    fflush(stream);
}

void cn_report_clear(struct cn_report *report)
{
    if (report->line_shown)
        cn_screen_clear(report->stream);
    report->line_shown = false;
}

static cn_err print_row(struct cn_report *report, const struct cn_ledger_version *version,
                        uint64_t now_ms)
{
    struct cn_score score;
    uint32_t selected, accepted, boards;
    char up[24], down[24], accuracy[16] = "-", loss[16] = "-";
    cn_err err = cn_ledger_count(report->ledger, version->number, &selected, &accepted);
    if (!err)
        err = cn_tally_boards(report->ledger, version->number, &boards);
    if (err)
        return err;
    cn_score_of(version, &score);
    if (score.known && report->job->loss == CN_LOSS_CROSS_ENTROPY)
        snprintf(accuracy, sizeof(accuracy), "%.4f", score.accuracy);
    if (score.known)
        snprintf(loss, sizeof(loss), "%.5g", score.loss);
    cn_bytes_text(version->bytes_in, up);
    cn_bytes_text(version->bytes_out, down);
    cn_report_clear(report);
    fprintf(report->stream, "%7u  %8s  %9s  %6u  %7u  %10s  %10s  %6" PRIu64 " s\n",
            version->number, accuracy, loss, boards, accepted, up, down,
            (now_ms - report->start_ms) / 1000);
    fflush(report->stream);
    return CN_OK;
}

// A row waits for the measurement of its version. The central set is measured soon. The measurement
// by the boards is complete when the next version exists.
static bool is_due(const struct cn_ledger_version *version, const struct cn_run_state *state)
{
    bool last = version->number + 1 == state->round;
    return version->central.count != 0 || !last || state->phase == CN_RUN_ENDED;
}

// Writes how long the run will still take, at the pace of this program's versions so far. A stop
// rule may end the run sooner.
static void describe_rest(const struct cn_report *report, const struct cn_run_state *state,
                          uint64_t now_ms, char text[CN_SCREEN_LEFT_SIZE + 2])
{
    char left[CN_SCREEN_LEFT_SIZE];
    uint32_t begun = report->first ? report->first : 1; // the first round of this program
    cn_screen_time_left(now_ms - report->start_ms, state->round - begun,
                        (uint64_t)report->job->rounds + 1 - begun, left);
    snprintf(text, CN_SCREEN_LEFT_SIZE + 2, "%s%s", left[0] ? "; " : "", left);
}

static void draw_line(struct cn_report *report, const struct cn_run_state *state, uint64_t now_ms)
{
    char line[160], rest[CN_SCREEN_LEFT_SIZE + 2];
    if (!report->live || now_ms - report->line_ms < LINE_MS)
        return;
    report->line_ms = now_ms;
    describe_rest(report, state, now_ms, rest);
    switch (state->phase) {
    case CN_RUN_GATHER:
        snprintf(line, sizeof(line), "round %u: waiting for groups", state->round);
        break;
    case CN_RUN_OPEN:
        snprintf(line, sizeof(line),
                 "round %u of %u: %u of %u updates, deadline in %" PRIu64 " s%s", state->round,
                 report->job->rounds, state->accepted, cn_job_updates_needed(report->job),
                 state->remaining_ms / 1000, rest);
        break;
    case CN_RUN_ENDED:
        snprintf(line, sizeof(line), "%s", state->end_reason);
        break;
    default:
        snprintf(line, sizeof(line), "round %u of %u: merging and measuring%s", state->round,
                 report->job->rounds, rest);
        break;
    }
    cn_screen_draw(report->stream, line); // a log line, too, overwrites the live line
    report->line_shown = true;
}

// Prints the rows of the versions that exist; without all only those that are due.
static cn_err print_rows(struct cn_report *report, const struct cn_run_state *state, bool all,
                         uint64_t now_ms)
{
    struct cn_ledger_version version;
    while (report->next < state->round) {
        cn_err err = cn_ledger_find_version(report->ledger, report->next, &version);
        if (err == CN_ENOTFOUND || (!err && !all && !is_due(&version, state)))
            break;
        if (!err)
            err = print_row(report, &version, now_ms);
        if (err)
            return err;
        report->next++;
    }
    return CN_OK;
}

cn_err cn_report_update(struct cn_report *report, const struct cn_run_state *state, uint64_t now_ms)
{
    cn_err err = print_rows(report, state, false, now_ms);
    if (!err)
        draw_line(report, state, now_ms);
    return err;
}

cn_err cn_report_rest(struct cn_report *report, const struct cn_run_state *state, uint64_t now_ms)
{
    return print_rows(report, state, true, now_ms);
}

static cn_err count_updates(struct cn_ledger *ledger, uint32_t rounds, uint64_t *updates)
{
    *updates = 0;
    for (uint32_t round = 1; round <= rounds; round++) {
        uint32_t selected, accepted;
        cn_err err = cn_ledger_count(ledger, round, &selected, &accepted);
        if (err)
            return err;
        *updates += accepted;
    }
    return CN_OK;
}

static void print_score(const struct cn_report *report, const struct cn_run_state *state)
{
    const struct cn_score *score = &state->progress.newest_score;
    char measures[CN_SCORE_TEXT];
    cn_score_text(score, false, measures);
    const char *source = score->central ? "central set" : "the groups' median";
    if (!score->known)
        fprintf(report->stream, "held-out accuracy is not known: nobody measured a version\n");
    else if (report->job->loss == CN_LOSS_CROSS_ENTROPY)
        fprintf(report->stream, "held-out accuracy %.3f (%s, version %u)%s\n", score->accuracy,
                source, state->progress.newest_known, measures);
    else
        fprintf(report->stream, "held-out loss %.6g (%s, version %u)%s\n", score->loss, source,
                state->progress.newest_known, measures);
}

// Says that the last version was measured by nobody, if that is so.
static void print_lag(const struct cn_report *report, const struct cn_run_state *state,
                      uint32_t newest)
{
    char text[CN_SCORE_LAG];
    cn_score_lag_text(&state->progress, newest, true, text);
    if (text[0])
        fprintf(report->stream, "%s\n", text);
}

static void print_traffic(const struct cn_report *report, const char *what, uint64_t up_bytes,
                          uint64_t down_bytes)
{
    char up[24], down[24];
    cn_bytes_text(up_bytes, up);
    cn_bytes_text(down_bytes, down);
    fprintf(report->stream, "%s %s up, %s down", what, up, down);
}

static void print_summary(const struct cn_report *report, const struct cn_run_state *state,
                          const struct cn_layout *layout, const char *state_directory,
                          const struct cn_ledger_version *newest, uint64_t updates)
{
    char dense[24], digest[2 * CN_DIGEST_SIZE + 1];
    const struct cn_run_traffic *traffic = &state->traffic;
    uint64_t payload = traffic->in.payload + traffic->out.payload;
    uint64_t dense_bytes = updates * 2 * layout->total * sizeof(float);
    cn_bytes_text(dense_bytes, dense);
    cn_hex(digest, newest->digest, CN_DIGEST_SIZE);
    print_score(report, state);
    print_lag(report, state, newest->number);
    print_traffic(report, "payload", traffic->in.payload, traffic->out.payload);
    print_traffic(report, "; messages", traffic->in.messages, traffic->out.messages);
    print_traffic(report, "; with all headers on the wire", traffic->in.wire, traffic->out.wire);
    fprintf(report->stream, "\ndense float32 both ways would be %s", dense);
    if (payload)
        fprintf(report->stream, ", %.1f times the payload", (double)dense_bytes / (double)payload);
    fprintf(report->stream,
            "\nmodel: version %u, digest %s\n       in %s/files/version-%u.full; cairn-aggregator "
            "export makes an ONNX file of it\n",
            newest->number, digest, state_directory, newest->number);
}

cn_err cn_report_summary(struct cn_report *report, const struct cn_run_state *state,
                         const struct cn_layout *layout, const char *state_directory)
{
    struct cn_ledger_version newest;
    uint64_t updates;
    cn_err err = cn_ledger_newest_version(report->ledger, &newest);
    if (!err)
        err = count_updates(report->ledger, newest.number, &updates);
    if (err)
        return err;
    char *text = NULL;
    size_t size = 0;
    struct cn_report wrapped = *report;
    cn_report_clear(report);
    if (state->end_reason) {
        cn_screen_paint(report->stream, CN_SCREEN_GREEN, "the run is over");
        fprintf(report->stream, ": %s\n", state->end_reason);
    }
    if (report->stream == stdout) // a terminal gets no line that is wider
        wrapped.stream = open_memstream(&text, &size);
    if (!wrapped.stream)
        return CN_ENOMEM;
    print_summary(&wrapped, state, layout, state_directory, &newest, updates);
    if (report->stream == stdout && fclose(wrapped.stream) == 0)
        cn_wrap_print_all(text, CN_WRAP_INDENT);
    free(text);
    fflush(report->stream);
    return CN_OK;
}
