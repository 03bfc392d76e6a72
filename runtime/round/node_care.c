#include "runtime/round/node_care.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define READ_MS 1000
#define HOOK_LIMIT_S 30
#define WARN_MS 10000         // a sensor that is not there by then is said to be missing
#define CLOCK_SET 1704067200L // 2024: before it the clock was never set

cn_err cn_node_care_init(struct cn_node_care *care, const struct cn_settings *settings)
{
    const struct cn_care_settings *from = &settings->care;

    *care = (struct cn_node_care){.settings = settings};
    care->rules = (struct cn_care_rules){
        .pause_above_mc = from->pause_above_mc,
        .resume_below_mc = from->resume_below_mc         ? from->resume_below_mc
                           : from->pause_above_mc > 8000 ? from->pause_above_mc - 8000
                                                         : 0,
        .budget_mw = from->enforce_power ? settings->power_mw : 0,
        .window_from_ms = from->window_from_ms,
        .window_to_ms = from->window_to_ms,
        .others_max = from->others_max,
        .wear_bytes = from->wear_bytes,
    };
    return cn_sensors_open("", from->zones, from->power_sensors, &care->sensors);
}

void cn_node_care_deinit(struct cn_node_care *care)
{
    cn_sensors_close(care->sensors);
    care->sensors = NULL;
}

static uint64_t time_of_day(void)
{
    time_t now = time(NULL);
    struct tm local;

    if (now < CLOCK_SET || !localtime_r(&now, &local))
        return CN_CARE_NO_CLOCK;
    return ((uint64_t)local.tm_hour * 3600 + (uint64_t)local.tm_min * 60 + (uint64_t)local.tm_sec) *
           1000;
}

// Starts a hook with the facts in its environment.
static void run_hook(const struct cn_node_care *care, const char *path, const char *event,
                     const struct cn_progress *progress)
{
    char texts[8][CN_PATH_SIZE + 64];
    char *environment[9] = {0};
    const char *search = getenv("PATH");
    cn_err err;

    if (!path[0])
        return;
    snprintf(texts[0], sizeof(texts[0]), "CAIRN_EVENT=%s", event);
    snprintf(texts[1], sizeof(texts[1]), "CAIRN_BOARD=%s", care->settings->name);
    snprintf(texts[2], sizeof(texts[2]), "CAIRN_ROUND=%u", progress->round);
    snprintf(texts[3], sizeof(texts[3]), "CAIRN_VERSION=%u", progress->version);
    snprintf(texts[4], sizeof(texts[4]), "CAIRN_ACCURACY=%.6f", progress->held_out_accuracy);
    snprintf(texts[5], sizeof(texts[5]), "CAIRN_REASON=%s", cn_care_text(care->care.pause));
    snprintf(texts[6], sizeof(texts[6]), "CAIRN_MODEL=%s/model.current.onnx",
             care->settings->state);
    snprintf(texts[7], sizeof(texts[7]), "PATH=%.500s", search ? search : "/usr/bin:/bin");
    for (size_t i = 0; i < 8; i++)
        environment[i] = texts[i];
    err = cn_platform_start_hook(path, environment, HOOK_LIMIT_S);
    if (err)
        cn_log(CN_LOG_WARN, "hook", "%s of %s cannot be run: %s", path, event, cn_err_text(err));
}

static void count_energy(struct cn_node_care *care, const struct cn_progress *progress,
                         uint64_t passed_ms)
{
    if (progress->round != care->round) {
        care->last_j = care->round_j;
        care->round_j = 0;
    }
    // mW x ms are microjoules.
    if (care->reading.has_power)
        care->round_j += (double)care->reading.power_mw * (double)passed_ms / 1e6;
}

static void tell_progress(struct cn_node_care *care, const struct cn_progress *progress)
{
    const struct cn_care_settings *settings = &care->settings->care;

    if (progress->round != care->round)
        run_hook(care, settings->on_round, "round", progress);
    if (progress->version != care->version)
        run_hook(care, settings->on_version, "version", progress);
    care->round = progress->round;
    care->version = progress->version;
}

static void warn_of_missing(struct cn_node_care *care, uint64_t now_ms)
{
    bool heat = care->rules.pause_above_mc && !care->reading.has_temperature;
    bool power = care->rules.budget_mw && !care->reading.has_power;

    if (care->warned || now_ms < WARN_MS || !(heat || power))
        return;
    care->warned = true;
    cn_log(CN_LOG_WARN, "care", "no %s sensor of the profile can be read; its limit is not kept",
           heat ? "temperature" : "power");
}

static void tell_pause(const struct cn_node_care *care, const struct cn_progress *progress)
{
    const struct cn_reading *reading = &care->reading;
    char facts[96] = "";

    if (reading->has_temperature)
        snprintf(facts, sizeof(facts), " (%s at %.1f C%s)", reading->zone,
                 reading->temperature_mc / 1000.0, reading->throttled ? ", throttled" : "");
    if (care->care.pause)
        cn_log(CN_LOG_INFO, "care", "training pauses: %s%s", cn_care_text(care->care.pause), facts);
    else
        cn_log(CN_LOG_INFO, "care", "training goes on%s", facts);
    run_hook(care, care->settings->care.on_pause, care->care.pause ? "pause" : "resume", progress);
}

bool cn_node_care_poll(struct cn_node_care *care, const struct cn_progress *progress,
                       uint64_t now_ms)
{
    enum cn_pause before = care->care.pause;
    uint64_t passed_ms = care->read_ms ? now_ms - care->read_ms : 0;

    if (care->read_ms && passed_ms < READ_MS)
        return false;
    care->read_ms = now_ms;
    cn_sensors_read(care->sensors, &care->reading);
    count_energy(care, progress, passed_ms);
    tell_progress(care, progress);
    warn_of_missing(care, now_ms);
    if (cn_care_decide(&care->care, &care->rules, &care->reading, now_ms, time_of_day()) == before)
        return false;
    tell_pause(care, progress);
    return true;
}
