#include "aggregator/serve/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "aggregator/show/show.h"
#include "runtime/port/usage_metrics.h"
#include "transport/message/message.h"

#define GAUGE "gauge"
#define COUNTER "counter"

static void write_identity(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    char protocol[16], run[24];
    snprintf(protocol, sizeof(protocol), "%d", CN_PROTOCOL_MAX);
    snprintf(run, sizeof(run), "%016" PRIx64, source->run);
    const struct cn_metric_label build[] = {{"version", source->release}, {"protocol", protocol}};
    const struct cn_metric_label job[] = {{"job", source->job->name}, {"run", run}};
    cn_metric_begin(text, "cairn_build_info", GAUGE, "Always 1; names the release.");
    cn_metric_add(text, build, 2, 1);
    cn_metric_begin(text, "cairn_run_info", GAUGE, "Always 1; names the job and its run.");
    cn_metric_add(text, job, 2, 1);
}

static void write_phase(enum cn_run_phase phase, struct cn_metric_text *text)
{
    static const char *const names[] = {"gather", "open", "closing", "measure", "ended"};
    cn_metric_begin(text, "cairn_round_phase", GAUGE, "1 for the phase in which the run is.");
    for (int i = 0; i <= CN_RUN_ENDED; i++)
        cn_metric_add_by(text, "phase", names[i], i == (int)phase);
}

static void write_round(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    const struct cn_run_state *state = source->state;
    const struct cn_run_counts *counts = source->counts;
    cn_metric_one(text, "cairn_round", GAUGE,
                  "The round under way, else the next one; after the end the last one.",
                  state->phase == CN_RUN_ENDED ? source->version : state->round);
    cn_metric_one(text, "cairn_rounds", GAUGE, "Rounds after which the run ends.",
                  source->job->rounds);
    cn_metric_one(text, "cairn_version", GAUGE, "The newest version.", source->version);
    if (state->progress.best_score.known)
        cn_metric_one(text, "cairn_best_version", GAUGE, "The best version that was measured.",
                      state->progress.best);
    write_phase(state->phase, text);
    cn_metric_one(text, "cairn_run_paused", GAUGE,
                  "0: it goes on; 1: no round is opened; 2: nor is the open one closed.",
                  state->steering.pause);
    cn_metric_one(text, "cairn_run_leaving", GAUGE, "1 when the aggregator ends after this round.",
                  state->steering.leaving);
    cn_metric_one(text, "cairn_round_quorum", GAUGE, "Updates that close a round.",
                  cn_job_updates_needed(source->job));
    cn_metric_one(text, "cairn_round_invited", GAUGE, "Groups that are invited to the round.",
                  state->selected);
    cn_metric_one(text, "cairn_round_accepted", GAUGE, "Updates accepted in the round.",
                  state->accepted);
    if (state->phase == CN_RUN_OPEN)
        cn_metric_one(text, "cairn_round_remaining_seconds", GAUGE, "Until the round's deadline.",
                      (double)state->remaining_ms / 1e3);
    cn_metric_begin(text, "cairn_rounds_total", COUNTER,
                    "Rounds that were merged, and deadlines that extended one.");
    cn_metric_add_by(text, "result", "merged", (double)counts->merged);
    cn_metric_add_by(text, "result", "extended", (double)counts->extended);
}

static void write_updates(const struct cn_run_counts *counts, struct cn_metric_text *text)
{
    static const char *const reasons[CN_REFUSAL_COUNT] = {
        [CN_REFUSAL_FRAME] = "frame",
        [CN_REFUSAL_OTHER] = "other_update",
        [CN_REFUSAL_RUN] = "other_run",
        [CN_REFUSAL_NOT_OPEN] = "not_open",
        [CN_REFUSAL_NOT_INVITED] = "not_invited",
        [CN_REFUSAL_BASE] = "other_base",
    };
    cn_metric_begin(text, "cairn_updates_total", COUNTER, "Verdicts about updates.");
    cn_metric_add_by(text, "verdict", "accepted", (double)counts->accepted);
    cn_metric_add_by(text, "verdict", "rejected", (double)counts->rejected);
    cn_metric_add_by(text, "verdict", "late", (double)counts->late);
    cn_metric_add_by(text, "verdict", "repeat", (double)counts->repeated);
    cn_metric_begin(text, "cairn_updates_rejected_total", COUNTER,
                    "Rejected updates by the reason.");
    for (int i = 0; i < CN_REFUSAL_COUNT; i++)
        cn_metric_add_by(text, "reason", reasons[i], (double)counts->refused[i]);
    cn_metric_one(text, "cairn_updates_cut_total", COUNTER,
                  "Updates that a merge scaled down or left out.", (double)counts->cut);
    cn_metric_one(text, "cairn_updates_stale_total", COUNTER,
                  "Accepted updates that began from an older version than the newest.",
                  (double)counts->stale);
    cn_metric_one(text, "cairn_updates_behind_total", COUNTER,
                  "Versions that accepted updates were behind, in all.", (double)counts->behind);
    cn_metric_one(text, "cairn_weight_capped_total", COUNTER,
                  "Updates that count for fewer samples than they said.", (double)counts->capped);
}

static void write_times(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    const struct cn_run_counts *counts = source->counts;
    cn_metric_histogram(text, "cairn_round_duration_seconds",
                        "From the begin of a round to its version.", &counts->round);
    cn_metric_histogram(text, "cairn_merge_seconds", "Making a version and storing it.",
                        &counts->merge);
    cn_metric_histogram(text, "cairn_evaluation_seconds", "Measuring a version on the central set.",
                        &counts->evaluation);
    cn_metric_histogram(text, "cairn_accept_commit_seconds", "Making an accepted update durable.",
                        &counts->commit);
    cn_metric_histogram(text, "cairn_loop_pause_seconds",
                        "Time in which the aggregator did not look at its sockets.",
                        source->pauses);
}

// Writes the score of the newest version that was measured. The label set tells who measured it:
// the gateway with its own samples, or the boards.
static void write_score(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    const struct cn_score *score = &source->state->progress.newest_score;
    const char *set = score->central ? "central" : "boards";
    const struct {
        const char *name, *help;
        double value;
        bool known;
    } rows[] = {
        {"cairn_accuracy_ratio", "Accuracy of the newest version that was measured.",
         score->accuracy, source->job->loss == CN_LOSS_CROSS_ENTROPY},
        {"cairn_loss", "Mean loss of the newest version that was measured.", score->loss, true},
        {"cairn_f1_ratio", "F1 of the newest version that was measured.", score->measures.f1,
         score->measures.f1 > 0},
        {"cairn_perplexity", "Perplexity of the newest version that was measured.",
         score->measures.perplexity, score->measures.perplexity > 0},
    };
    if (score->known)
        cn_metric_one(text, "cairn_measured_version", GAUGE,
                      "The newest version that was measured.",
                      source->state->progress.newest_known);
    for (size_t i = 0; score->known && i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!rows[i].known)
            continue;
        cn_metric_begin(text, rows[i].name, GAUGE, rows[i].help);
        cn_metric_add_by(text, "set", set, rows[i].value);
    }
}

static void write_handshakes(const struct cn_coap_server_stats *server, struct cn_metric_text *text)
{
    static const char *const results[CN_COAP_HANDSHAKES] = {
        [CN_COAP_HANDSHAKE_OK] = "ok",         [CN_COAP_HANDSHAKE_UNKNOWN] = "unknown",
        [CN_COAP_HANDSHAKE_FAILED] = "failed", [CN_COAP_HANDSHAKE_UNFINISHED] = "unfinished",
        [CN_COAP_HANDSHAKE_FULL] = "full",
    };
    cn_metric_begin(text, "cairn_handshakes_total", COUNTER,
                    "Handshakes of boards, by what became of them.");
    for (int i = 0; i < CN_COAP_HANDSHAKES; i++)
        cn_metric_add_by(text, "result", results[i], (double)server->handshakes[i]);
}

static void write_traffic(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    static const char *const classes[CN_COAP_CLASSES] = {[2] = "2", [4] = "4", [5] = "5"};
    uint64_t bytes;
    uint32_t uploads = cn_spool_usage(source->spool, &bytes);
    cn_metric_begin(text, "cairn_bytes_total", COUNTER,
                    "Bytes of CoAP messages of the run, over restarts.");
    cn_metric_add_by(text, "direction", "in", (double)source->state->traffic.in.messages);
    cn_metric_add_by(text, "direction", "out", (double)source->state->traffic.out.messages);
    cn_metric_one(text, "cairn_sessions", GAUGE, "Live sessions of boards.",
                  source->server->sessions);
    write_handshakes(source->server, text);
    cn_metric_begin(text, "cairn_requests_total", COUNTER,
                    "Requests of boards, by the class of the answer's code.");
    for (int i = 0; i < CN_COAP_CLASSES; i++)
        if (classes[i])
            cn_metric_add_by(text, "code", classes[i], (double)source->server->requests[i]);
    cn_metric_one(text, "cairn_uploads_open", GAUGE, "Uploads under way.", uploads);
    cn_metric_one(text, "cairn_spool_bytes", GAUGE, "Declared bytes of the uploads under way.",
                  (double)bytes);
}

static void write_store(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    if (source->disk_free)
        cn_metric_one(text, "cairn_disk_free_bytes", GAUGE,
                      "Free space on the disk of the state directory.",
                      (double)cn_show_disk_count(source->disk_free));
    cn_metric_one(text, "cairn_disk_reserve_bytes", GAUGE, "Free space that uploads leave.",
                  (double)source->disk_reserve);
    cn_metric_one(text, "cairn_store_up", GAUGE,
                  "0 while the run waits after an error of the ledger or the disk.",
                  source->store_up);
    cn_metric_one(text, "cairn_store_retry_total", COUNTER,
                  "Times that the run began to wait after such an error.", (double)source->retries);
}

cn_err cn_metrics_write(const struct cn_metrics_source *source, struct cn_buffer *out)
{
    struct cn_metric_text text = {.out = out};
    write_identity(source, &text);
    write_round(source, &text);
    write_updates(source->counts, &text);
    write_times(source, &text);
    write_score(source, &text);
    write_traffic(source, &text);
    write_store(source, &text);
    cn_metrics_write_boards(source, &text);
    cn_usage_metrics_write(&text);
    return text.err;
}
