#include "aggregator/roster/sensor_curve.h"

#include <math.h>

static struct cn_sensor_point read_point(const struct cn_health *said, uint32_t at_s)
{
    return (struct cn_sensor_point){
        .at_s = at_s,
        .readings = 1,
        .temperature_c =
            said->temperature_mk
                ? (float)(((double)said->temperature_mk - CN_HEALTH_ZERO_CELSIUS) / 1e3)
                : NAN,
        .power_w = said->power_mw ? (float)((double)said->power_mw / 1e3) : NAN,
        .samples_per_s = said->centisamples ? (float)((double)said->centisamples / 100) : NAN,
    };
}

// Returns the mean of a and b, weighted by their numbers of readings. A value that is NaN does not
// count.
static float mean(float a, uint32_t a_count, float b, uint32_t b_count)
{
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    double count = (double)a_count + (double)b_count;
    return (float)((a * (double)a_count + b * (double)b_count) / count);
}

// Adds the readings of a later point to a point.
static void merge(struct cn_sensor_point *point, const struct cn_sensor_point *later)
{
    uint32_t count = point->readings, more = later->readings;
    point->temperature_c = fmaxf(point->temperature_c, later->temperature_c); // NaN gives way
    point->power_w = mean(point->power_w, count, later->power_w, more);
    point->samples_per_s = mean(point->samples_per_s, count, later->samples_per_s, more);
    point->readings = count + more;
}

static void thin(struct cn_sensor_curve *curve)
{
    for (uint32_t i = 0; i < CN_CURVE_OLDER / 2; i++) {
        struct cn_sensor_point pair = curve->older[2 * i];
        merge(&pair, &curve->older[2 * i + 1]);
        curve->older[i] = pair;
    }
    curve->older_count = CN_CURVE_OLDER / 2;
    curve->older_s *= 2;
}

// Takes a point that is not among the newest any more.
static void age(struct cn_sensor_curve *curve, const struct cn_sensor_point *point)
{
    struct cn_sensor_point *last =
        curve->older_count ? &curve->older[curve->older_count - 1] : NULL;
    if (last && point->at_s - last->at_s < curve->older_s) {
        merge(last, point);
        return;
    }
    if (curve->older_count == CN_CURVE_OLDER)
        thin(curve);
    curve->older[curve->older_count++] = *point;
}

void cn_sensor_curve_add(struct cn_sensor_curve *curve, const struct cn_health *said,
                         uint64_t told_ms)
{
    if (!curve->begun_ms) {
        curve->begun_ms = told_ms;
        curve->older_s = CN_CURVE_OLDER_S;
    }
    struct cn_sensor_point point = read_point(said, (uint32_t)((told_ms - curve->begun_ms) / 1000));
    uint32_t newest = (curve->fine_first + curve->fine_count + CN_CURVE_FINE - 1) % CN_CURVE_FINE;
    if (curve->fine_count && point.at_s - curve->fine[newest].at_s < CN_CURVE_FINE_S) {
        merge(&curve->fine[newest], &point);
        return;
    }
    if (curve->fine_count == CN_CURVE_FINE) {
        age(curve, &curve->fine[curve->fine_first]);
        curve->fine_first = (curve->fine_first + 1) % CN_CURVE_FINE;
        curve->fine_count--;
    }
    curve->fine[(curve->fine_first + curve->fine_count++) % CN_CURVE_FINE] = point;
}

size_t cn_sensor_curve_count(const struct cn_sensor_curve *curve)
{
    return (size_t)curve->older_count + curve->fine_count;
}

const struct cn_sensor_point *cn_sensor_curve_at(const struct cn_sensor_curve *curve, size_t number)
{
    if (number < curve->older_count)
        return &curve->older[number];
    return &curve->fine[(curve->fine_first + number - curve->older_count) % CN_CURVE_FINE];
}
