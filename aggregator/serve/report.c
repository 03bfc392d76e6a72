#include "aggregator/serve/report.h"

#include <inttypes.h>
#include <unistd.h>

#include "aggregator/store/tally.h"

#define LINE_MS 250

void cn_report_init(struct cn_report *report, FILE *stream, struct cn_ledger *ledger,
                    const struct cn_job *job, uint32_t next, uint64_t now_ms)
{
    *report = (struct cn_report){
        .stream = stream,
        .ledger = ledger,
        .job = job,
        .live = isatty(fileno(stream)),
        .next = next,
        .start_ms = now_ms,
    };
    fprintf(stream, "%7s  %8s  %9s  %6s  %7s  %10s  %10s  %8s\n", "version", "accuracy", "loss",
            "boards", "updates", "msgs up", "msgs down", "time");
    fflush(stream);
}

void cn_report_clear(struct cn_report *report)
{
    if (report->line_shown)
        fputs("\033[K", report->stream);
    report->line_shown = false;
}

// "12.3 kB"
static void format_bytes(uint64_t bytes, char text[24])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 24, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
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
    format_bytes(version->bytes_in, up);
    format_bytes(version->bytes_out, down);
    cn_report_clear(report);
    fprintf(report->stream,
            "%7" PRIu32 "  %8s  %9s  %6" PRIu32 "  %7" PRIu32 "  %10s  %10s  %6" PRIu64 " s\n",
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

static void draw_line(struct cn_report *report, const struct cn_run_state *state, uint64_t now_ms)
{
    if (!report->live || now_ms - report->line_ms < LINE_MS)
        return;
    report->line_ms = now_ms;
    cn_report_clear(report);
    switch (state->phase) {
    case CN_RUN_GATHER:
        fprintf(report->stream, "round %" PRIu32 ": waiting for groups", state->round);
        break;
    case CN_RUN_OPEN:
        fprintf(report->stream,
                "round %" PRIu32 ": %" PRIu32 " of %" PRIu32 " updates, %" PRIu64 " s left",
                state->round, state->accepted, cn_job_quorum(report->job),
                state->remaining_ms / 1000);
        break;
    case CN_RUN_ENDED:
        fprintf(report->stream, "%s", state->end_reason);
        break;
    default:
        fprintf(report->stream, "round %" PRIu32 ": merging and measuring", state->round);
        break;
    }
    fputs("\r", report->stream); // what is printed next, also a log line, overwrites the live line
    fflush(report->stream);
    report->line_shown = true;
}

cn_err cn_report_update(struct cn_report *report, const struct cn_run_state *state, uint64_t now_ms)
{
    struct cn_ledger_version version;
    while (report->next < state->round) {
        cn_err err = cn_ledger_find_version(report->ledger, report->next, &version);
        if (err == CN_ENOTFOUND || (!err && !is_due(&version, state)))
            break;
        if (!err)
            err = print_row(report, &version, now_ms);
        if (err)
            return err;
        report->next++;
    }
    draw_line(report, state, now_ms);
    return CN_OK;
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
        fprintf(report->stream, "held-out accuracy %.3f (%s, version %" PRIu32 ")%s\n",
                score->accuracy, source, state->progress.newest_known, measures);
    else
        fprintf(report->stream, "held-out loss %.6g (%s, version %" PRIu32 ")%s\n", score->loss,
                source, state->progress.newest_known, measures);
}

static void print_traffic(const struct cn_report *report, const char *what, uint64_t up_bytes,
                          uint64_t down_bytes)
{
    char up[24], down[24];
    format_bytes(up_bytes, up);
    format_bytes(down_bytes, down);
    fprintf(report->stream, "%s %s up, %s down", what, up, down);
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
    char dense[24], digest[2 * CN_DIGEST_SIZE + 1];
    const struct cn_run_traffic *traffic = &state->traffic;
    uint64_t payload = traffic->in.payload + traffic->out.payload;
    uint64_t dense_bytes = updates * 2 * layout->total * sizeof(float);
    format_bytes(dense_bytes, dense);
    cn_hex(digest, newest.digest, CN_DIGEST_SIZE);
    cn_report_clear(report);
    if (state->end_reason)
        fprintf(report->stream, "the run is over: %s\n", state->end_reason);
    print_score(report, state);
    print_traffic(report, "payload", traffic->in.payload, traffic->out.payload);
    print_traffic(report, "; messages", traffic->in.messages, traffic->out.messages);
    print_traffic(report, "; with all headers on the wire", traffic->in.wire, traffic->out.wire);
    fprintf(report->stream, "\ndense float32 both ways would be %s", dense);
    if (payload)
        fprintf(report->stream, ", %.1f times the payload", (double)dense_bytes / (double)payload);
    fprintf(report->stream,
            "\nmodel: version %" PRIu32 ", digest %s\n       in %s/files/version-%" PRIu32
            ".full; cairn-aggregator export makes an ONNX file of it\n",
            newest.number, digest, state_directory, newest.number);
    fflush(report->stream);
    return CN_OK;
}
