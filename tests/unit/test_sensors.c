// Sensors of the boards, from trees as their kernels show them; sensors that vanish and lie.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/port/sensors.h"
#include "runtime/profile/profile.h"
#include "tests/support/board_tree.h"

static char root[64];

static void put(const char *path, const char *text)
{
    cn_board_tree_put(root, path, text);
}

static void take(const char *path)
{
    char full[512];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    assert_int_equal(unlink(full), 0);
}

static int make_root(void **state)
{
    (void)state;
    cn_board_tree_make(root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    cn_board_tree_remove(root);
    return 0;
}

static void put_board(const char *board)
{
    cn_board_tree_lay(root, CAIRN_TEST_DATA, board);
}

static struct cn_reading read_once(const char *zones, const char *powers)
{
    struct cn_sensors *sensors;
    struct cn_reading reading;

    assert_int_equal(cn_sensors_open(root, zones, powers, &sensors), CN_OK);
    cn_sensors_read(sensors, &reading);
    cn_sensors_close(sensors);
    return reading;
}

static void an_orin_shows_its_hottest_zone_and_its_input_power(void **state)
{
    struct cn_reading reading;

    (void)state;
    put_board("jetson-orin-nano-8gb");
    reading = read_once("tj-thermal", "VDD_IN");
    assert_true(reading.has_temperature);
    assert_int_equal(reading.temperature_mc, 56437);
    assert_string_equal(reading.zone, "tj-thermal");
    assert_true(reading.has_power);
    assert_int_equal(reading.power_mw, 4968ull * 2016 / 1000);
    assert_false(reading.throttled);
    assert_false(read_once("tj-thermal", "").has_power);
    assert_false(read_once("tj-thermal", "NO_SUCH_RAIL").has_power);
}

static void of_several_power_labels_the_first_that_is_there_counts(void **state)
{
    (void)state;
    put_board("jetson-orin-nano-8gb");
    assert_int_equal(read_once("", "NO_SUCH VDD_SOC VDD_IN").power_mw, 4960ull * 504 / 1000);
}

static void rails_are_summed_only_if_all_are_there(void **state)
{
    (void)state;
    put_board("jetson-agx-orin-64gb");
    assert_int_equal(read_once("", "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0").power_mw,
                     (20024ull * 240 + 20024ull * 80 + 5024ull * 1328) / 1000);
    take("sys/class/hwmon/hwmon2/curr2_input");
    assert_false(read_once("", "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0").has_power);
    assert_int_equal(read_once("", "VDD_GPU_SOC+VDD_CPU_CV VIN_SYS_5V0").power_mw,
                     5024ull * 1328 / 1000);
}

static void a_thor_measures_at_its_input_and_its_gpu_may_sleep(void **state)
{
    struct cn_reading reading;

    (void)state;
    put_board("jetson-agx-thor");
    reading = read_once("gpu-thermal tj-thermal", "ina238");
    assert_int_equal(reading.power_mw, 42125);
    assert_int_equal(reading.temperature_mc, 55093);
    assert_false(read_once("gpu-thermal", "").has_temperature);
}

static void a_lowered_clock_and_a_battery_are_seen(void **state)
{
    struct cn_reading reading;

    (void)state;
    put_board("gateway-x86");
    assert_false(read_once("", "").on_battery);
    put("sys/class/power_supply/BAT0/type", "Battery\n");
    put("sys/class/power_supply/BAT0/status", "Charging\n");
    put("sys/class/power_supply/BAT0/capacity", "34\n");
    assert_false(read_once("", "").on_battery);
    put("sys/class/power_supply/BAT0/status", "Discharging\n");
    reading = read_once("", "");
    assert_true(reading.on_battery);
    assert_true(reading.battery > 0.33 && reading.battery < 0.35);
    put("sys/class/power_supply/BAT0/scope", "Device\n"); // of a mouse
    assert_false(read_once("", "").on_battery);

    put("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1000000\n");
    put("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "2000000\n");
    put("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "2000000\n");
    put("sys/devices/system/cpu/cpufreq/policy4/cpuinfo_max_freq", "2000000\n");
    reading = read_once("", "");
    assert_true(reading.has_clock && reading.clock > 0.74 && reading.clock < 0.76);
}

static void a_gateway_is_not_throttled_by_a_setting(void **state)
{
    struct cn_reading reading;

    (void)state;
    put_board("gateway-x86");
    reading = read_once("", "");
    assert_int_equal(reading.temperature_mc, 44000);
    assert_string_equal(reading.zone, "x86_pkg_temp");
    assert_false(reading.throttled);
    put("sys/class/thermal/cooling_device1/cur_state", "7\n");
    assert_true(read_once("", "").throttled);
}

// The labels in a board's folder are those that its kernel has.
static void every_board_finds_the_sensors_of_its_folder(void **state)
{
    static const char *const boards[] = {"jetson-orin-nano-8gb", "jetson-orin-nx-16gb",
                                         "jetson-agx-orin-64gb", "jetson-agx-thor",
                                         "raspberrypi-5"};
    static struct cn_diag diag;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        const struct cn_upkeep_settings *care;
        struct cn_profile *profile = NULL;
        struct cn_reading reading;
        char path[512];

        remove_root(NULL);
        make_root(NULL);
        put_board(boards[i]);
        snprintf(path, sizeof(path), "%s/../../boards/%s/board.yaml", CAIRN_TEST_DATA, boards[i]);
        cn_diag_init(&diag);
        assert_int_equal(cn_profile_load(path, &diag, &profile), CN_OK);
        care = &cn_profile_settings(profile)->care;
        reading = read_once(care->zones, care->power_sensors);
        assert_true(reading.has_temperature && care->pause_above_mc);
        assert_int_equal(reading.has_power, care->power_sensors[0] != '\0');
        cn_profile_free(profile);
    }
}

static void a_raspberry_pi_says_that_it_throttles(void **state)
{
    struct cn_reading reading;

    (void)state;
    put_board("raspberrypi-5");
    reading = read_once("", "");
    assert_int_equal(reading.temperature_mc, 61150);
    assert_false(reading.throttled);
    put("sys/devices/platform/soc/soc:firmware/get_throttled", "50004\n");
    assert_true(read_once("", "").throttled);
    put("sys/devices/platform/soc/soc:firmware/get_throttled", "50000\n"); // was, is not
    assert_false(read_once("", "").throttled);
    take("sys/devices/platform/soc/soc:firmware/get_throttled");
    assert_false(read_once("", "").throttled);
}

static void a_fan_is_no_throttling(void **state)
{
    (void)state;
    put_board("raspberrypi-5");
    put("sys/class/thermal/cooling_device0/cur_state", "4\n");
    assert_false(read_once("", "").throttled);
    put("sys/class/thermal/cooling_device1/type", "cpufreq-cpu0\n");
    put("sys/class/thermal/cooling_device1/cur_state", "2\n");
    assert_true(read_once("", "").throttled);
}

static void sensors_that_vanish_or_lie_have_no_value(void **state)
{
    static const char *const lies[] = {"-273000\n", "255000\n", "", "n/a\n", "56437x\n"};

    (void)state;
    put_board("raspberrypi-5");
    for (size_t i = 0; i < 5; i++) {
        put("sys/class/thermal/thermal_zone0/temp", lies[i]);
        assert_false(read_once("", "").has_temperature);
    }
    take("sys/class/thermal/thermal_zone0/temp");
    assert_false(read_once("", "").has_temperature);
    put_board("jetson-orin-nano-8gb");
    put("sys/class/hwmon/hwmon1/curr1_input", "4000000\n");
    assert_false(read_once("", "VDD_IN").has_power);
    take("sys/class/hwmon/hwmon1/in1_input");
    assert_false(read_once("", "VDD_IN").has_power);
}

static void the_hottest_zone_counts_unless_one_is_named(void **state)
{
    (void)state;
    put_board("jetson-orin-nano-8gb");
    put("sys/class/thermal/thermal_zone0/temp", "91000\n");
    assert_int_equal(read_once("", "").temperature_mc, 91000);
    assert_int_equal(read_once("gpu-thermal tj-thermal", "").temperature_mc, 56437);
    assert_false(read_once("thermal", "").has_temperature); // a part of a name is no name
}

static void what_other_programs_use_is_told_apart(void **state)
{
    struct cn_sensors *sensors;
    struct cn_reading reading;

    (void)state;
    put("proc/stat", "cpu  1000 0 500 8000 500 0 0 0 0 0\n");
    put("proc/self/stat", "7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 300 100 0 0\n");
    put("proc/self/io", "rchar: 1\nwrite_bytes: 123456\n");
    assert_int_equal(cn_sensors_open(root, "", "", &sensors), CN_OK);
    cn_sensors_read(sensors, &reading);
    assert_false(reading.has_others); // nothing to compare with
    assert_true(reading.has_written && reading.written == 123456);
    put("proc/stat", "cpu  1600 0 500 8400 500 0 0 0 0 0\n");
    put("proc/self/stat", "7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 600 100 0 0\n");
    cn_sensors_read(sensors, &reading);
    assert_true(reading.has_others);
    assert_true(reading.others > 0.299 && reading.others < 0.301); // 600 of 1000 ticks, 300 its own
    cn_sensors_close(sensors);
}

static void a_board_without_sensors_has_no_values(void **state)
{
    struct cn_reading reading;

    (void)state;
    reading = read_once("", "VDD_IN");
    assert_false(reading.has_temperature || reading.has_power || reading.throttled ||
                 reading.has_others || reading.has_written);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        CASE(an_orin_shows_its_hottest_zone_and_its_input_power),
        CASE(of_several_power_labels_the_first_that_is_there_counts),
        CASE(rails_are_summed_only_if_all_are_there),
        CASE(a_thor_measures_at_its_input_and_its_gpu_may_sleep),
        CASE(a_lowered_clock_and_a_battery_are_seen),
        CASE(a_gateway_is_not_throttled_by_a_setting),
        CASE(every_board_finds_the_sensors_of_its_folder),
        CASE(a_raspberry_pi_says_that_it_throttles),
        CASE(a_fan_is_no_throttling),
        CASE(sensors_that_vanish_or_lie_have_no_value),
        CASE(the_hottest_zone_counts_unless_one_is_named),
        CASE(what_other_programs_use_is_told_apart),
        CASE(a_board_without_sensors_has_no_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
