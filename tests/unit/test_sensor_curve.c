// Curves of sensors: fine for two hours, thinned before that, in the same memory for days.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include <cjson/cJSON.h>

#include "aggregator/serve/sensor_curves.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/show.h"
#include "tests/unit/aggregator_world.h"

#define BEGIN_MS 5000000
#define MINUTE_MS 60000ull

static struct cn_health report(double temperature_c)
{
    return (struct cn_health){
        .temperature_mk = (uint64_t)(temperature_c * 1000) + CN_HEALTH_ZERO_CELSIUS,
        .power_mw = 10000,
        .centisamples = 250,
    };
}

// Reports each minute, of 50 degrees; one of them of 90.
static struct cn_sensor_curve *run_for(uint64_t minutes, uint64_t hot)
{
    struct cn_sensor_curve *curve = calloc(1, sizeof(*curve));
    for (uint64_t i = 0; i < minutes; i++) {
        struct cn_health said = report(i == hot ? 90 : 50);
        cn_sensor_curve_add(curve, &said, BEGIN_MS + i * MINUTE_MS);
    }
    return curve;
}

static void a_short_run_has_each_report(void **state)
{
    struct cn_sensor_curve *curve = run_for(120, 60);
    (void)state;
    assert_int_equal(cn_sensor_curve_count(curve), 120);
    assert_int_equal(cn_sensor_curve_at(curve, 119)->at_s, 119 * 60);
    assert_float_equal(cn_sensor_curve_at(curve, 60)->temperature_c, 90, 1e-3);
    assert_float_equal(cn_sensor_curve_at(curve, 61)->temperature_c, 50, 1e-3);
    assert_float_equal(cn_sensor_curve_at(curve, 61)->power_w, 10, 1e-3);
    free(curve);
}

static void a_run_of_days_is_thinned_from_its_start_on(void **state)
{
    (void)state;
    for (uint64_t days = 1; days <= 64; days *= 4) {
        uint64_t minutes = days * 24 * 60, readings = 0;
        struct cn_sensor_curve *curve = run_for(minutes, 7);
        size_t count = cn_sensor_curve_count(curve);
        assert_in_range(count, CN_CURVE_FINE + CN_CURVE_OLDER / 2, CN_CURVE_FINE + CN_CURVE_OLDER);
        assert_int_equal(cn_sensor_curve_at(curve, 0)->at_s, 0);
        assert_float_equal(cn_sensor_curve_at(curve, 0)->temperature_c, 90, 1e-3); // the heat stays
        assert_int_equal(cn_sensor_curve_at(curve, count - 1)->at_s, (minutes - 1) * 60);
        for (size_t i = 0; i < count; i++) {
            const struct cn_sensor_point *point = cn_sensor_curve_at(curve, i);
            readings += point->readings;
            if (i + 1 < count && i + 1 < curve->older_count) // evenly spread
                assert_int_equal(cn_sensor_curve_at(curve, i + 1)->at_s - point->at_s,
                                 curve->older_s);
            if (i >= curve->older_count)
                assert_int_equal(point->readings, 1);
        }
        assert_int_equal(readings, minutes);
        free(curve);
    }
}

static void reports_in_a_row_are_one_point_and_unknown_values_give_way(void **state)
{
    struct cn_sensor_curve *curve = calloc(1, sizeof(*curve));
    struct cn_health said = report(50), nothing = {.power_mw = 20000};
    (void)state;
    cn_sensor_curve_add(curve, &nothing, BEGIN_MS);
    assert_true(isnan(cn_sensor_curve_at(curve, 0)->temperature_c));
    cn_sensor_curve_add(curve, &said, BEGIN_MS + 5000);
    assert_int_equal(cn_sensor_curve_count(curve), 1);
    assert_float_equal(cn_sensor_curve_at(curve, 0)->temperature_c, 50, 1e-3);
    assert_float_equal(cn_sensor_curve_at(curve, 0)->power_w, 15, 1e-3);
    assert_float_equal(cn_sensor_curve_at(curve, 0)->samples_per_s, 2.5, 1e-3);
    free(curve);
}

// Writes what is shown of board a, and returns its member "sensors"; NULL: it has none.
static cJSON *show(struct aggregator_world *world, const struct cn_sensor_curves *curves)
{
    const struct cn_run_state run = {.phase = CN_RUN_OPEN};
    struct cn_live_state live = {0};
    struct cn_buffer out;
    assert_int_equal(cn_status_gather(world->roster, &run, &live), CN_OK);
    struct cn_show_source source = world_show_source(world, &live);
    source.curve = cn_sensor_curves_find(curves, "a");
    cn_buffer_init(&out, CN_SHOW_LIMIT);
    assert_int_equal(cn_show_board(&source, "a", &out), CN_OK);
    cJSON *root = cJSON_ParseWithLength((const char *)out.data, out.size);
    cJSON *sensors = cJSON_DetachItemFromObjectCaseSensitive(root, "sensors");
    cJSON_Delete(root);
    cn_buffer_deinit(&out);
    cn_status_deinit(&live);
    return sensors;
}

static void a_board_is_shown_with_its_curve(void **state)
{
    struct aggregator_world world;
    struct cn_sensor_curves curves = {0};
    const struct cn_health hot = report(61.5), idle = {.state = CN_HEALTH_IDLE};
    (void)state;
    world_init(&world);
    assert_int_equal(world_enroll(&world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(&world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    cn_roster_report(world.roster, "b", &idle, world_now_ms); // it has no sensors
    for (int i = 0; i < 3; i++) {
        cn_roster_report(world.roster, "a", &hot, world_now_ms);
        for (int look = 0; look < 3; look++) // a report is taken once
            cn_sensor_curves_look(&curves, world.roster, world_now_ms += 1000);
        world_now_ms += MINUTE_MS;
    }
    assert_int_equal(curves.count, 1);
    assert_int_equal(cn_sensor_curve_count(cn_sensor_curves_find(&curves, "a")), 3);
    cJSON *sensors = show(&world, &curves);
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(sensors, "at_ms");
    const cJSON *heat = cJSON_GetObjectItemCaseSensitive(sensors, "temperature_c");
    assert_int_equal(cJSON_GetArraySize(times), 3);
    assert_float_equal(cJSON_GetArrayItem(times, 0)->valuedouble, WORLD_START_MS, 1000);
    assert_float_equal(cJSON_GetArrayItem(heat, 2)->valuedouble, 61.5, 1e-3);
    cJSON_Delete(sensors);
    cn_sensor_curves_deinit(&curves);
    assert_null(show(&world, &curves));
    world_deinit(&world);
}

// Enrols board a with another key.
static void enroll_again(struct aggregator_world *world)
{
    struct cn_ledger *other;
    struct cn_ledger_board entry = {.name = "a", .group = "a", .secret = {1}};
    assert_int_equal(cn_ledger_open(world->directory, &other), CN_OK);
    assert_int_equal(cn_ledger_enroll(other, &entry), CN_OK);
    cn_ledger_close(other);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
}

static void look_after_report(struct aggregator_world *world, struct cn_sensor_curves *curves,
                              double temperature_c)
{
    const struct cn_health hot = report(temperature_c);
    world_now_ms += MINUTE_MS;
    cn_roster_report(world->roster, "a", &hot, world_now_ms);
    cn_roster_report(world->roster, "b", &hot, world_now_ms);
    cn_sensor_curves_look(curves, world->roster, world_now_ms);
}

static void a_board_that_is_revoked_has_no_curve_and_another_key_begins_one(void **state)
{
    struct aggregator_world world;
    struct cn_sensor_curves curves = {0};
    (void)state;
    world_init(&world);
    assert_int_equal(world_enroll(&world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(&world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    look_after_report(&world, &curves, 40);
    look_after_report(&world, &curves, 50);
    assert_int_equal(cn_sensor_curve_count(cn_sensor_curves_find(&curves, "a")), 2);
    world_revoke(&world, "a");
    enroll_again(&world); // before a look
    look_after_report(&world, &curves, 60);
    assert_int_equal(curves.count, 2);
    const struct cn_sensor_curve *curve = cn_sensor_curves_find(&curves, "a");
    assert_int_equal(cn_sensor_curve_count(curve), 1);
    assert_float_equal(cn_sensor_curve_at(curve, 0)->temperature_c, 60, 1e-3);
    world_revoke(&world, "a");
    assert_int_equal(cn_roster_refresh(world.roster, NULL, NULL), CN_OK);
    look_after_report(&world, &curves, 70);
    assert_null(cn_sensor_curves_find(&curves, "a"));
    assert_int_equal(curves.count, 1);
    assert_int_equal(cn_sensor_curve_count(cn_sensor_curves_find(&curves, "b")), 4);
    cn_sensor_curves_deinit(&curves);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_run_has_each_report),
        cmocka_unit_test(a_run_of_days_is_thinned_from_its_start_on),
        cmocka_unit_test(reports_in_a_row_are_one_point_and_unknown_values_give_way),
        cmocka_unit_test(a_board_is_shown_with_its_curve),
        cmocka_unit_test(a_board_that_is_revoked_has_no_curve_and_another_key_begins_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
