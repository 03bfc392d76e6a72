#include "runtime/round/node/status_file.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"

static const char *const phases[] = {
    [CN_PHASE_EMPTY] = "waiting for a model",
    [CN_PHASE_BASE] = "waiting for a round",
    [CN_PHASE_TRAIN] = "training",
    [CN_PHASE_SEND] = "delivering",
};

const char *cn_status_text(const struct cn_status_file *status)
{
    const struct cn_progress *progress = &status->progress;

    if (status->networked && status->fault)
        return status->fault;
    if (status->networked && status->refused)
        return "the aggregator refuses this board";
    // After the end of the run the aggregator may be away.
    if (progress->ended && !status->ahead)
        return "the run has ended";
    if (status->networked && status->down)
        return "the aggregator does not answer";
    if (status->networked && !status->registered)
        return "not registered yet";
    if (status->care->care.pause)
        return cn_pause_text(status->care->care.pause);
    if (status->ahead)
        return "ahead of the aggregator: was that restored from a backup?";
    if (!status->networked)
        return phases[progress->phase];
    if (progress->size == 0)
        return "the group is forming";
    if (progress->needs[0])
        return progress->needs;
    if (progress->hindered[0])
        return progress->hindered;
    if (progress->rank != 0 && progress->phase != CN_PHASE_TRAIN)
        return "following the group's leader";
    if (progress->looks_on)
        return "looks on: the others make up all chains and shards";
    if (!status->has_news && progress->rank == 0)
        return "no word of a round yet";
    if (status->news.state == CN_ROUND_OPEN && !status->news.invited && progress->rank == 0)
        return "this group was not selected for the round";
    return phases[progress->phase];
}

// Adds a number with six digits, unless it is infinite or not a number.
static void add(cJSON *json, const char *name, double value)
{
    char text[32];

    if (!isfinite(value))
        return;
    snprintf(text, sizeof(text), "%.6g", value);
    cJSON_AddRawToObject(json, name, text);
}

static void add_count(cJSON *json, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    cJSON_AddRawToObject(json, name, text);
}

static void add_job(cJSON *json, const struct cn_status_file *status)
{
    char run[17];

    if (!status->job)
        return;
    snprintf(run, sizeof(run), "%016" PRIx64, status->run);
    cJSON_AddStringToObject(json, "job", status->job->name);
    cJSON_AddStringToObject(json, "run", run);
    add_count(json, "rounds", status->job->rounds);
}

// Adds the slowest member and the reason.
static void add_slowest(cJSON *group, const struct cn_settings *settings,
                        const struct cn_progress *progress)
{
    char text[200], why[80];

    if (progress->slowest >= settings->group.member_count)
        return;
    cn_slow_reason_text(progress->slowest_why, why, sizeof(why));
    snprintf(text, sizeof(text),
             "takes %.3g ms for a micro-batch, the others %.3g ms, and trains %u of %u in a step: "
             "%s",
             progress->slowest_ms, progress->usual_ms, progress->slowest_micro,
             progress->total_micro, why);
    cJSON_AddStringToObject(group, "slowest", settings->group.members[progress->slowest].name);
    cJSON_AddStringToObject(group, "slowest_why", text);
}

// Adds the chain that trains a model in parts. People count parts, chains, shares and cuts from 1.
static void add_chain(cJSON *group, const struct cn_settings *settings,
                      const struct cn_chain_progress *chain)
{
    cJSON *json, *bytes;

    if (!chain->parts)
        return;
    json = cJSON_AddObjectToObject(group, "chain");
    add_count(json, "part", chain->part + 1);
    add_count(json, "parts", chain->parts);
    add_count(json, "chain", chain->chain + 1);
    add_count(json, "chains", chain->chains);
    if (chain->shards > 1) {
        add_count(json, "share", chain->shard + 1);
        add_count(json, "shares", chain->shards);
    }
    add_count(json, "micro_batches", chain->micro);
    add_count(json, "in_flight", chain->slots);
    add(json, "bubble", chain->bubble);
    if (chain->slowest_ms > 0 && chain->slowest < settings->group.member_count) {
        add(json, "bubble_parts", chain->bubble_parts);
        add(json, "bubble_measured", chain->bubble_measured);
        cJSON_AddStringToObject(json, "slowest", settings->group.members[chain->slowest].name);
        add_count(json, "slowest_part", chain->slowest_part + 1);
        add(json, "slowest_ms", chain->slowest_ms);
    }
    if (chain->slow_link[0])
        cJSON_AddStringToObject(json, "slow_link", chain->slow_link);
    bytes = cJSON_AddArrayToObject(json, "cut_bytes");
    for (uint32_t p = 0; p + 1 < chain->parts; p++)
        cJSON_AddItemToArray(bytes, cJSON_CreateNumber((double)chain->bytes[p]));
}

static void add_group(cJSON *json, const struct cn_status_file *status)
{
    const struct cn_progress *progress = &status->progress;
    cJSON *group;

    if (!status->registered)
        return;
    group = cJSON_AddObjectToObject(json, "group");
    cJSON_AddStringToObject(group, "name", status->group);
    if (status->members[0])
        cJSON_AddStringToObject(group, "members", status->members);
    if (!progress->size)
        return;
    add_count(group, "epoch", progress->epoch);
    add_count(group, "rank", progress->rank);
    add_count(group, "size", progress->size);
    if (progress->train[0])
        cJSON_AddStringToObject(group, "train", progress->train);
    if (progress->layout[0])
        cJSON_AddStringToObject(group, "auto", progress->layout);
    add_chain(group, status->settings, &progress->chain);
    if (status->leader[0])
        cJSON_AddStringToObject(group, "leader", status->leader);
    if (progress->size > 1 && progress->backend) {
        cJSON_AddStringToObject(group, "backend", progress->backend);
        cJSON_AddBoolToObject(group, "encrypted", progress->encrypted);
        if (progress->backend_why[0])
            cJSON_AddStringToObject(group, "backend_why", progress->backend_why);
        add_slowest(group, status->settings, progress);
    }
}

static void add_round(cJSON *json, const struct cn_progress *progress)
{
    cJSON *round = cJSON_AddObjectToObject(json, "round");

    add_count(round, "number", progress->round);
    cJSON_AddStringToObject(round, "phase", phases[progress->phase]);
    add_count(round, "step", progress->step);
    add_count(round, "steps", progress->steps);
    if (progress->step_ms > 0) {
        add(round, "step_ms", progress->step_ms);
        add(round, "samples_per_s", progress->samples_per_s);
        add(round, "compute_ms", progress->split.compute_ms);
        add(round, "wait_ms", progress->split.wait_ms);
        add(round, "wire_ms", progress->split.wire_ms);
    }
}

static void add_scores(cJSON *json, const struct cn_scores *scores)
{
    cJSON *object;

    if (!scores->rows)
        return;
    object = cJSON_AddObjectToObject(json, "held_out");
    add_count(object, "version", scores->version);
    add_count(object, "samples", scores->rows);
    add(object, "loss", scores->loss);
    add(object, "accuracy", scores->accuracy);
    add(object, "top5", scores->top5);
    add(object, "f1", scores->f1);
    add(object, "mae", scores->mae);
    add(object, "perplexity", scores->perplexity);
}

static void add_update(cJSON *json, const struct cn_progress *progress)
{
    cJSON *update;

    if (!progress->update_bytes)
        return;
    update = cJSON_AddObjectToObject(json, "update");
    add_count(update, "bytes", progress->update_bytes);
    add_count(update, "float32_bytes", progress->dense_bytes);
}

static void add_bytes(cJSON *link, const char *way, const struct cn_link_bytes *bytes)
{
    char name[24];

    snprintf(name, sizeof(name), "bytes_%s", way); // bytes of messages
    add_count(link, name, bytes->messages);
    snprintf(name, sizeof(name), "payload_%s", way);
    add_count(link, name, bytes->payload);
    snprintf(name, sizeof(name), "wire_%s", way);
    add_count(link, name, bytes->wire);
}

static void add_link(cJSON *json, const struct cn_status_file *status)
{
    const struct cn_link_path_stats *measure = &status->link;
    cJSON *link = cJSON_AddObjectToObject(json, "link");

    cJSON_AddStringToObject(link, "state",
                            status->refused      ? "refused"
                            : status->down       ? "down"
                            : status->registered ? "up"
                                                 : "registering");
    cJSON_AddStringToObject(link, "encryption", status->bytes.stream ? "TLS 1.2" : "DTLS 1.2");
    add_bytes(link, "up", &status->bytes.up);
    add_bytes(link, "down", &status->bytes.down);
    if (status->settings->day_bytes && status->traffic) {
        add_count(link, "bytes_today", status->traffic->used);
        add_count(link, "day_max", status->settings->day_bytes);
    }
    if (measure->up_bps > 0)
        add(link, "up_bps", measure->up_bps);
    if (measure->down_bps > 0)
        add(link, "down_bps", measure->down_bps);
    if (measure->rtt_us) {
        add(link, "rtt_ms", (double)measure->rtt_us / 1000);
        add(link, "loss", measure->loss);
    }
}

static void add_board(cJSON *json, const struct cn_upkeep *care)
{
    const struct cn_reading *reading = &care->reading;
    cJSON *board = cJSON_AddObjectToObject(json, "sensors");

    if (reading->has_temperature) {
        add(board, "temperature_c", reading->temperature_mc * 1e-3);
        cJSON_AddStringToObject(board, "zone", reading->zone);
    }
    cJSON_AddBoolToObject(board, "throttled", reading->throttled);
    if (reading->has_power)
        add(board, "power_w", (double)reading->power_mw * 1e-3);
    if (care->power_mode[0])
        cJSON_AddStringToObject(board, "power_mode", care->power_mode);
    if (care->measured)
        add(board, "round_j", care->round_j);
    if (care->last_j > 0)
        add(board, "last_round_j", care->last_j);
    if (reading->has_others)
        add(board, "others", reading->others);
    if (care->rules.wear_bytes && care->care.has_day) {
        add_count(board, "written_today", cn_pause_worn(&care->care, reading));
        add_count(board, "wear_budget", care->rules.wear_bytes);
    }
}

static void add_memory(cJSON *json, const struct cn_status_file *status)
{
    cJSON *memory = cJSON_AddObjectToObject(json, "memory");

    if (status->progress.memory)
        add_count(memory, "planned", status->progress.memory);
    if (status->progress.copies_memory)
        add_count(memory, "copies", status->progress.copies_memory);
    if (cn_scratch_in_files())
        add_count(memory, "in_files", cn_scratch_in_files());
    add_count(memory, "peak_resident", cn_platform_peak_memory());
    if (status->settings->memory_limit)
        add_count(memory, "train_max", status->settings->memory_limit);
}

static cJSON *describe(const struct cn_status_file *status, uint64_t now_ms)
{
    const struct cn_pause_state *care = &status->care->care;
    cJSON *json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "board", status->settings->name);
    cJSON_AddStringToObject(json, "state", cn_status_text(status));
    if (status->networked && status->fault)
        cJSON_AddTrueToObject(json, "gave_up");
    cJSON_AddStringToObject(json, "pause", cn_pause_text(care->pause));
    if (care->pause)
        add_count(json, "paused_s", (now_ms - care->pause_ms) / 1000);
    add_job(json, status);
    add_count(json, "version", status->progress.version);
    if (status->networked)
        add_group(json, status);
    add_round(json, &status->progress);
    add_scores(json, &status->progress.scores);
    add_update(json, &status->progress);
    if (status->networked)
        add_link(json, status);
    add_board(json, status->care);
    add_memory(json, status);
    add_count(json, "residuals_lost", status->progress.resets);
    add_count(json, "pid", (uint64_t)getpid());
    add_count(json, "written_ms", now_ms);
    return json;
}

void cn_status_file_write(const struct cn_status_file *status, uint64_t now_ms)
{
    char path[CN_PATH_SIZE + 32];
    cJSON *json = describe(status, now_ms);
    char *text = cJSON_PrintUnformatted(json);
    cn_err err;

    snprintf(path, sizeof(path), "%s/%s", status->settings->state, CN_STATUS_FILE_NAME);
    err = text ? cn_platform_replace_note(path, text) : CN_ENOMEM;
    if (err)
        cn_log(CN_LOG_DEBUG, "node", "%s was not replaced: %s", path, cn_err_text(err));
    cJSON_free(text);
    cJSON_Delete(json);
}
