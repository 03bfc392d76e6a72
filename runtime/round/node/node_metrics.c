#include "runtime/round/node/node_metrics.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/build_version.h"
#include "runtime/base/metric_text.h"
#include "runtime/port/platform.h"
#include "runtime/port/usage_metrics.h"

#define FILE_MS 10000
#define SIZE_MAX_BYTES (64u << 10)
#define GAUGE "gauge"
#define COUNTER "counter"

// --- metrics ---

static void write_state(const struct cn_status_file *status, struct cn_metric_text *text)
{
    static const char *const states[] = {"waiting", "idle", "training", "delivering", "paused"};
    const struct cn_progress *progress = &status->progress;
    bool waits = !progress->size || cn_progress_waits(progress);
    size_t now = status->care->care.pause ? 4 : waits ? 0 : (size_t)progress->phase;

    cn_metric_begin(text, "cairn_node_build_info", GAUGE, "1; the version of cairn-node.");
    cn_metric_add_by(text, "version", cn_build_version, 1);
    cn_metric_begin(text, "cairn_node_state", GAUGE, "1 for what the board does.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        cn_metric_add_by(text, "state", states[i], i == now);
    cn_metric_begin(text, "cairn_node_paused", GAUGE, "1 for the rule by which training pauses.");
    for (enum cn_pause rule = CN_PAUSE_HEAT; rule <= CN_PAUSE_UPDATE; rule++)
        cn_metric_add_by(text, "rule", cn_pause_word(rule), status->care->care.pause == rule);
}

static void write_training(const struct cn_progress *progress, struct cn_metric_text *text)
{
    cn_metric_one(text, "cairn_node_round", GAUGE, "The round.", progress->round);
    cn_metric_one(text, "cairn_node_version", GAUGE, "The version that the board has.",
                  progress->version);
    cn_metric_one(text, "cairn_node_step", GAUGE, "Steps of the round that are done.",
                  progress->step);
    cn_metric_one(text, "cairn_node_steps", GAUGE, "Steps of the round.", progress->steps);
    if (progress->step_ms > 0) {
        cn_metric_one(text, "cairn_node_step_seconds", GAUGE, "A step, as a moving average.",
                      progress->step_ms / 1e3);
        cn_metric_one(text, "cairn_node_samples_per_second", GAUGE, "Samples of this board.",
                      progress->samples_per_s);
    }
    if (progress->size > 1)
        cn_metric_one(text, "cairn_node_collective_seconds", GAUGE,
                      "Of a step, for the sums of the group, as a moving average.",
                      (progress->split.wait_ms + progress->split.wire_ms) / 1e3);
    cn_metric_one(text, "cairn_node_residuals_lost_total", COUNTER,
                  "Times that what was left out of updates was lost.", (double)progress->resets);
    if (progress->memory)
        cn_metric_one(text, "cairn_node_memory_planned_bytes", GAUGE, "Memory for training.",
                      (double)progress->memory);
    if (progress->size) {
        cn_metric_one(text, "cairn_node_group_epoch", GAUGE, "Number of the group's epoch.",
                      (double)progress->epoch);
        cn_metric_one(text, "cairn_node_group_size", GAUGE, "Members that work together.",
                      progress->size);
    }
}

// People count parts and cuts from 1.
static void write_chain(const struct cn_chain_progress *chain, struct cn_metric_text *text)
{
    if (!chain->parts)
        return;
    cn_metric_one(text, "cairn_node_chain_part", GAUGE, "The part of the model that it trains.",
                  chain->part + 1.0);
    cn_metric_one(text, "cairn_node_chain_parts", GAUGE, "Parts of the model.", chain->parts);
    cn_metric_one(text, "cairn_node_chains", GAUGE, "Chains that train the model.", chain->chains);
    cn_metric_begin(text, "cairn_node_chain_bubble_ratio", GAUGE,
                    "Share of a step in which boards of the chain rest.");
    cn_metric_add_by(text, "of", "equal_parts", chain->bubble);
    if (chain->slowest_ms > 0) {
        cn_metric_add_by(text, "of", "these_parts", chain->bubble_parts);
        cn_metric_add_by(text, "of", "measured", chain->bubble_measured);
        cn_metric_one(text, "cairn_node_chain_slowest_part", GAUGE,
                      "The part that computes longest.", chain->slowest_part + 1.0);
        cn_metric_one(text, "cairn_node_chain_slowest_part_seconds", GAUGE,
                      "What it computes of a step.", chain->slowest_ms / 1e3);
    }
    cn_metric_begin(text, "cairn_node_chain_cut_bytes", GAUGE,
                    "Bytes that pass a cut in a step, both ways.");
    for (uint32_t p = 0; p + 1 < chain->parts; p++) {
        char cut[12];

        snprintf(cut, sizeof(cut), "%u", p + 1);
        cn_metric_add_by(text, "cut", cut, (double)chain->bytes[p]);
    }
}

static void write_sensors(const struct cn_upkeep *care, struct cn_metric_text *text)
{
    const struct cn_reading *reading = &care->reading;

    if (reading->has_temperature)
        cn_metric_one(text, "cairn_node_temperature_celsius", GAUGE, "Of the hottest chosen zone.",
                      reading->temperature_mc / 1e3);
    cn_metric_one(text, "cairn_node_throttled", GAUGE,
                  "1 while the system slows itself down for heat or power.", reading->throttled);
    if (reading->has_power) {
        cn_metric_one(text, "cairn_node_power_watts", GAUGE, "What the board takes.",
                      (double)reading->power_mw / 1e3);
        cn_metric_one(text, "cairn_node_energy_joules_total", COUNTER, "Energy since the start.",
                      care->total_j);
    }
    if (reading->has_written)
        cn_metric_one(text, "cairn_node_written_bytes_total", COUNTER,
                      "Bytes that the process wrote to disks.", (double)reading->written);
    if (care->rules.wear_bytes && care->care.has_day)
        cn_metric_one(text, "cairn_node_wear_bytes", GAUGE,
                      "Bytes of this day, of those that storage.wear_budget allows.",
                      (double)cn_pause_worn(&care->care, reading));
}

static void write_link(const struct cn_status_file *status, struct cn_metric_text *text)
{
    if (!status->networked)
        return;
    cn_metric_one(text, "cairn_node_link_up", GAUGE, "1 while the gateway answers.",
                  status->registered && !status->down);
    cn_metric_begin(text, "cairn_node_link_bytes_total", COUNTER, "CoAP messages.");
    cn_metric_add_by(text, "direction", "in", (double)status->bytes.down.messages);
    cn_metric_add_by(text, "direction", "out", (double)status->bytes.up.messages);
    if (status->link.rtt_us) {
        cn_metric_one(text, "cairn_node_link_rtt_seconds", GAUGE, "Round trip to the gateway.",
                      (double)status->link.rtt_us / 1e6);
        cn_metric_one(text, "cairn_node_link_loss_ratio", GAUGE, "Transmissions that were lost.",
                      status->link.loss);
    }
}

cn_err cn_node_metrics_write(const struct cn_status_file *status, struct cn_buffer *out)
{
    struct cn_metric_text text = {.out = out};

    write_state(status, &text);
    write_training(&status->progress, &text);
    write_chain(&status->progress.chain, &text);
    write_sensors(status->care, &text);
    write_link(status, &text);
    cn_usage_metrics_write(&text);
    return text.err;
}

// --- the file ---

static void write_file(struct cn_node_metrics *metrics, uint64_t now_ms)
{
    const char *path = metrics->status->settings->http.metrics_file;
    struct cn_buffer text;
    uint64_t count;
    cn_err err;

    cn_buffer_init(&text, SIZE_MAX_BYTES);
    err = cn_node_metrics_write(metrics->status, &text);
    if (!err)
        err = cn_buffer_append(&text, "", 1);
    if (!err)
        err = cn_platform_publish_note(path, (const char *)text.data);
    cn_buffer_deinit(&text);
    if (err && cn_log_limit_due(&metrics->lines, now_ms, &count))
        cn_log(CN_LOG_WARN, "http", "http.metrics_file: %s cannot be written: %s", path,
               cn_err_text(err));
}

// --- opening, stepping, closing ---

static cn_err produce(void *context, struct cn_buffer *out)
{
    return cn_node_metrics_write(context, out);
}

void cn_node_metrics_open(struct cn_node_metrics *metrics, const struct cn_status_file *status,
                          const struct cn_text_server_ops *ops)
{
    const struct cn_settings *settings = status->settings;
    cn_err err;

    metrics->status = status;
    metrics->ops = ops;
    // With several GPUs, one process for each runs with the same profile. Only the first listens.
    if (!ops || !settings->http.listen[0] || settings->gpu_place)
        return;
    err = ops->open(&settings->http, "/metrics", CN_METRIC_TYPE, produce, (void *)(uintptr_t)status,
                    &metrics->server);
    if (err)
        cn_log(CN_LOG_ERROR, "http", "http.listen: %s: %s; the board goes on without metrics there",
               settings->http.listen, cn_err_text(err));
}

void cn_node_metrics_close(struct cn_node_metrics *metrics)
{
    if (metrics->server)
        metrics->ops->close(metrics->server);
    metrics->server = NULL;
}

void cn_node_metrics_end(struct cn_node_metrics *metrics)
{
    cn_node_metrics_close(metrics);
    if (metrics->written_ms)
        (void)remove(metrics->status->settings->http.metrics_file);
    metrics->written_ms = 0;
}

int cn_node_metrics_descriptor(const struct cn_node_metrics *metrics)
{
    return metrics->server ? metrics->ops->descriptor(metrics->server) : -1;
}

void cn_node_metrics_step(struct cn_node_metrics *metrics, uint64_t now_ms)
{
    const struct cn_settings *settings = metrics->status->settings;

    if (metrics->server && metrics->ops->step(metrics->server, now_ms)) {
        cn_log(CN_LOG_ERROR, "http", "the HTTP server failed and is closed until the next start");
        cn_node_metrics_close(metrics);
    }
    if (!settings->http.metrics_file[0] || settings->gpu_place ||
        (metrics->written_ms && now_ms - metrics->written_ms < FILE_MS))
        return;
    metrics->written_ms = now_ms;
    write_file(metrics, now_ms);
}
