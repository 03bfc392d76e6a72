// show_health.c - writes what a board reported about itself, and its last error.
#include "aggregator/show/show_parts.h"

static void show_chain(const struct cn_health *said, struct cn_json_text *json)
{
    if (!said->parts)
        return;
    cn_json_open(json, "chain", '{');
    cn_json_count(json, "part", said->part);
    cn_json_count(json, "parts", said->parts);
    cn_json_count(json, "chain", said->chain);
    cn_json_count(json, "chains", said->chains);
    if (said->bubble)
        cn_json_real(json, "bubble", (double)said->bubble / 1e3);
    cn_json_close(json, '}');
}

void cn_show_health(const struct cn_board_health *health, struct cn_json_text *json)
{
    const struct cn_health *said = &health->said;
    if (!health->told_ms)
        return;
    cn_json_open(json, "health", '{');
    cn_json_count(json, "told_ms", health->told_ms);
    cn_json_string(json, "state", cn_board_health_word(health));
    if (cn_board_health_pause(health))
        cn_json_string(json, "pause", cn_board_health_pause_word(health));
    cn_json_count(json, "round", said->round);
    cn_json_count(json, "step", said->step);
    cn_json_count(json, "steps", said->steps);
    if (said->temperature_mk)
        cn_json_real(json, "temperature_c", cn_show_celsius(said));
    if (said->power_mw)
        cn_json_real(json, "power_w", (double)said->power_mw / 1e3);
    if (said->samples)
        cn_json_count(json, "samples", said->samples);
    if (said->centisamples)
        cn_json_real(json, "samples_per_s", (double)said->centisamples / 100);
    cn_json_bool(json, "throttled", said->flags & CN_HEALTH_THROTTLED);
    cn_json_bool(json, "battery", said->flags & CN_HEALTH_BATTERY);
    if (said->resident_mib)
        cn_json_count(json, "resident_mib", said->resident_mib);
    show_chain(said, json);
    cn_json_close(json, '}');
}

double cn_show_celsius(const struct cn_health *said)
{
    return ((double)said->temperature_mk - CN_HEALTH_ZERO_CELSIUS) / 1e3;
}

void cn_show_last_error(const struct cn_last_error *error, struct cn_json_text *json)
{
    if (!error->count)
        return;
    cn_json_open(json, "last_error", '{');
    cn_json_foreign(json, "text", error->text);
    if (error->code)
        cn_json_count(json, "code", error->code);
    cn_json_count(json, "count", error->count);
    cn_json_count(json, "date_ms", error->date_ms);
    cn_json_close(json, '}');
}
