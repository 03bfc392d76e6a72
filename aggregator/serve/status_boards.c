#include "aggregator/serve/status_boards.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/port/crypto.h"

void cn_status_name_key(const struct cn_ledger_board *board, char text[CN_STATUS_KEY_SIZE])
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(board->secret, sizeof(board->secret), digest);
    cn_hex(text, digest, CN_STATUS_KEY_SIZE / 2);
}

// Returns what the running aggregator knows about the board. Zeros if the board was not heard with
// its present key. An older aggregator names no keys, and then the board's name is enough.
static struct cn_status_board find_board(const struct cn_status_report *report,
                                         const struct cn_ledger_board *board)
{
    char key[CN_STATUS_KEY_SIZE];
    cn_status_name_key(board, key);
    for (size_t i = 0; i < report->live->board_count; i++) {
        const struct cn_status_board *live = &report->live->boards[i];
        if (strcmp(live->name, board->name) == 0 && (!live->key[0] || strcmp(live->key, key) == 0))
            return *live;
    }
    return (struct cn_status_board){0};
}

// "orin-nano, 6 cpus, 4.0 GiB, 15 W"
static void describe_hardware(const struct cn_roster_facts *facts, char text[160])
{
    char power[32] = "", memory[32] = "";
    snprintf(text, 160, "-");
    if (facts->cpu_count == 0)
        return;
    if (facts->memory)
        snprintf(memory, sizeof(memory), ", %.1f GiB", (double)facts->memory / (1u << 30));
    if (facts->power_mw)
        snprintf(power, sizeof(power), ", %.3g W", (double)facts->power_mw / 1000);
    snprintf(text, 160, "%s%s%" PRIu32 " cpus%s%s", facts->type, facts->type[0] ? ", " : "",
             facts->cpu_count, memory, power);
}

#define REASON_SIZE (CN_INSTANCES_TEXT + 64)

static uint64_t seconds_since(const struct cn_status_report *report, uint64_t then_ms)
{
    return report->now_ms > then_ms ? (report->now_ms - then_ms) / 1000 : 0;
}

static bool runs_twice(const struct cn_status_report *report, const struct cn_status_board *live)
{
    return live->twice_ms && seconds_since(report, live->twice_ms) <= CN_INSTANCES_SHOWN_MS / 1000;
}

// Sets *reason to one sentence: why the board is, or is not, in the round. A sentence with numbers
// is written to text.
static cn_err explain(const struct cn_status_report *report, const struct cn_ledger_board *board,
                      const struct cn_status_board *live, char text[REASON_SIZE],
                      const char **reason)
{
    uint64_t heard_ms = live->heard_ms;
    struct cn_ledger_contribution contribution;
    bool selected = false;
    *reason = "in the round: its update is awaited";
    if (board->revoked) {
        *reason = "revoked: its key is refused";
        return CN_OK;
    }
    if (report->live->running && !heard_ms && !live->missing_ms) {
        *reason = "not heard since the aggregator started: check its power, network, key";
        return CN_OK;
    }
    if (runs_twice(report, live)) {
        snprintf(text, REASON_SIZE, "runs twice: two programs use its key, %s", live->twice);
        *reason = text;
        return CN_OK;
    }
    if (live->fault.told_ms) {
        snprintf(text, REASON_SIZE, "error %" PRIu64 " s ago: %s",
                 seconds_since(report, live->fault.told_ms), live->fault.text);
        *reason = text;
        return CN_OK;
    }
    if (live->facts.ahead_lineage) {
        *reason = "it is ahead of this ledger: was that restored from a backup?";
        return CN_OK;
    }
    if (report->ended) {
        *reason = "the run is over";
        return CN_OK;
    }
    if (live->missing_ms) {
        snprintf(text, REASON_SIZE, "missing in its group since %" PRIu64 " s",
                 seconds_since(report, live->missing_ms));
        *reason = text;
        return CN_OK;
    }
    if (report->round.number == 0 || report->round.state == CN_LEDGER_MERGED) {
        *reason = !report->live->running ? "the aggregator is not running"
                  : report->groups < cn_job_quorum(report->job)
                      ? "no round is open: fewer groups are enrolled than the quorum"
                      : "no round is open: it waits for more groups";
        return CN_OK;
    }
    cn_err err =
        cn_ledger_is_selected(report->ledger, report->round.number, board->group, &selected);
    if (err)
        return err;
    if (!selected) {
        *reason = "its group was not invited to this round";
        return CN_OK;
    }
    err = cn_ledger_find_contribution(report->ledger, report->round.number, board->group,
                                      &contribution);
    if (err == CN_OK)
        *reason = "in the round: its update is accepted";
    else if (!report->live->running)
        *reason = "in the round, but the aggregator is not running";
    return err == CN_ENOTFOUND ? CN_OK : err;
}

// Prints a member of a JSON object, except the first member.
static cn_err print_text(FILE *stream, const char *name, const char *text)
{
    cJSON *string = cJSON_CreateString(text);
    char *printed = string ? cJSON_PrintUnformatted(string) : NULL;
    cJSON_Delete(string);
    if (!printed)
        return CN_ENOMEM;
    fprintf(stream, ",\"%s\":%s", name, printed);
    cJSON_free(printed);
    return CN_OK;
}

cn_err cn_status_print_board(void *context, const struct cn_ledger_board *board)
{
    const struct cn_status_report *report = context;
    const char *reason;
    char text[REASON_SIZE];
    struct cn_status_board live = find_board(report, board);
    uint64_t heard_ms = live.heard_ms;
    uint64_t silent_s =
        heard_ms && heard_ms <= report->now_ms ? (report->now_ms - heard_ms) / 1000 : 0;
    cn_err err = explain(report, board, &live, text, &reason);
    if (err)
        return err;
    if (report->json) {
        fprintf(report->stream,
                "{\"board\":\"%s\",\"group\":\"%s\",\"revoked\":%s,\"max_weight\":%" PRIu64
                ",\"silent_s\":",
                board->name, board->group, board->revoked ? "true" : "false", board->max_weight);
        if (heard_ms)
            fprintf(report->stream, "%" PRIu64, silent_s);
        else
            fputs("null", report->stream);
        if (live.facts.cpu_count)
            fprintf(report->stream,
                    ",\"type\":\"%s\",\"cpus\":%" PRIu32 ",\"memory\":%" PRIu64
                    ",\"power_mw\":%" PRIu64,
                    live.facts.type, live.facts.cpu_count, live.facts.memory, live.facts.power_mw);
        if (runs_twice(report, &live))
            fprintf(report->stream, ",\"twice_s\":%" PRIu64, seconds_since(report, live.twice_ms));
        if (live.fault.told_ms)
            fprintf(report->stream, ",\"error_s\":%" PRIu64,
                    seconds_since(report, live.fault.told_ms));
        err = live.fault.told_ms ? print_text(report->stream, "error", live.fault.text) : CN_OK;
        if (!err)
            err = print_text(report->stream, "status", reason);
        fputs("}\n", report->stream);
        return err;
    }
    char heard[32] = "-", hardware[160];
    describe_hardware(&live.facts, hardware);
    if (heard_ms)
        snprintf(heard, sizeof(heard), "%" PRIu64 " s ago", silent_s);
    fprintf(report->stream, "  %-16s %-16s %-12s %-34s %s\n", board->name, board->group, heard,
            hardware, reason);
    return CN_OK;
}
