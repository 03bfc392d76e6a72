// show_sensors.c - writes what a board's sensors said over time.
#include "aggregator/show/show_parts.h"

static double temperature_of(const struct cn_sensor_point *point)
{
    return point->temperature_c;
}

static double power_of(const struct cn_sensor_point *point)
{
    return point->power_w;
}

static double speed_of(const struct cn_sensor_point *point)
{
    return point->samples_per_s;
}

void cn_show_sensors(const struct cn_sensor_curve *curve, struct cn_json_text *json)
{
    static const struct {
        const char *key;
        double (*read)(const struct cn_sensor_point *point);
    } values[] = {
        {"temperature_c", temperature_of}, {"power_w", power_of}, {"samples_per_s", speed_of}};
    size_t count = curve ? cn_sensor_curve_count(curve) : 0;
    if (!count)
        return;
    cn_json_open(json, "sensors", '{');
    cn_json_open(json, "at_ms", '[');
    for (size_t i = 0; i < count; i++)
        cn_json_count(json, NULL, curve->begun_ms + 1000ull * cn_sensor_curve_at(curve, i)->at_s);
    cn_json_close(json, ']');
    for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
        cn_json_open(json, values[v].key, '[');
        for (size_t i = 0; i < count; i++)
            cn_json_real(json, NULL, values[v].read(cn_sensor_curve_at(curve, i)));
        cn_json_close(json, ']');
    }
    cn_json_close(json, '}');
}
