#include "runtime/round/status_file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "runtime/base/log.h"

static const char *const phases[] = {
    [CN_PHASE_EMPTY] = "waiting for a model",
    [CN_PHASE_BASE] = "waiting for a round",
    [CN_PHASE_TRAIN] = "training",
    [CN_PHASE_SEND] = "delivering",
};

// Why this board does or does not train now, in one line.
static const char *explain(const struct cn_status_file *status)
{
    if (status->down)
        return "the aggregator does not answer";
    if (!status->registered)
        return "not registered yet";
    if (status->care->care.pause)
        return cn_care_text(status->care->care.pause);
    if (status->progress.size == 0)
        return "the group is forming";
    if (status->progress.ended)
        return "the run has ended";
    if (status->progress.rank != 0)
        return "following the group's leader";
    if (!status->has_news)
        return "no word of a round yet";
    if (!status->news.invited)
        return "this group was not selected for the round";
    return phases[status->progress.phase];
}

static cJSON *describe(const struct cn_settings *settings, const struct cn_status_file *status)
{
    const struct cn_reading *reading = &status->care->reading;
    cJSON *json = cJSON_CreateObject();
    char run[17] = "";

    if (status->registered)
        snprintf(run, sizeof(run), "%016llx", (unsigned long long)status->manifest->run);
    cJSON_AddStringToObject(json, "board", settings->name);
    cJSON_AddStringToObject(json, "state", explain(status));
    cJSON_AddStringToObject(json, "run", run);
    cJSON_AddStringToObject(json, "job", status->registered ? status->manifest->job.name : "");
    cJSON_AddStringToObject(json, "group", status->registered ? status->manifest->group : "");
    cJSON_AddStringToObject(json, "members", status->group);
    cJSON_AddStringToObject(json, "backend",
                            status->progress.backend ? status->progress.backend : "");
    cJSON_AddStringToObject(json, "train", status->progress.train);
    cJSON_AddNumberToObject(json, "round", status->progress.round);
    cJSON_AddNumberToObject(json, "step", status->progress.step);
    cJSON_AddNumberToObject(json, "version", status->progress.version);
    cJSON_AddNumberToObject(json, "held_out_accuracy", status->progress.held_out_accuracy);
    cJSON_AddNumberToObject(json, "residuals_lost", (double)status->progress.resets);
    cJSON_AddNumberToObject(json, "bytes_up", (double)status->bytes.bytes_up);
    cJSON_AddNumberToObject(json, "bytes_down", (double)status->bytes.bytes_down);
    cJSON_AddStringToObject(json, "pause", cn_care_text(status->care->care.pause));
    // Whole degrees and watts: the file is written anew whenever it changes.
    if (reading->has_temperature)
        cJSON_AddNumberToObject(json, "temperature_c", round(reading->temperature_mc * 1e-3));
    if (reading->has_power) {
        cJSON_AddNumberToObject(json, "power_w", round((double)reading->power_mw * 1e-3));
        cJSON_AddNumberToObject(json, "last_round_j", (double)(int64_t)status->care->last_j);
    }
    return json;
}

void cn_status_file_write(struct cn_store *store, const struct cn_settings *settings,
                          struct cn_status_file *status)
{
    cJSON *json = describe(settings, status);
    char *text = cJSON_PrintUnformatted(json);
    cn_err err;

    cJSON_Delete(json);
    if (!text || (status->written && strcmp(text, status->written) == 0)) {
        cJSON_free(text);
        return;
    }
    err = cn_store_replace(store, CN_STATUS_FILE_NAME, text, strlen(text));
    if (err)
        cn_log(CN_LOG_DEBUG, "node", "%s was not replaced: %s", CN_STATUS_FILE_NAME,
               cn_err_text(err));
    cJSON_free(status->written);
    status->written = text;
}

void cn_status_file_deinit(struct cn_status_file *status)
{
    cJSON_free(status->written);
    status->written = NULL;
}
