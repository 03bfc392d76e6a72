// Upkeep of a board by its node: wear over restarts, energy of rounds, power modes.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/round/upkeep/upkeep.h"
#include "tests/support/board_tree.h"
#include "tests/support/flaky_store.h"

#define MIB (UINT64_C(1) << 20)
#define HOUR UINT64_C(3600000)
#define DAY (24 * HOUR)

static char root[64];
static struct cn_settings settings;
static struct cn_flaky_store flaky;

static void put(const char *path, const char *text)
{
    cn_board_tree_put(root, path, text);
}

static int make_root(void **state)
{
    (void)state;
    cn_board_tree_make(root);
    settings = (struct cn_settings){.name = "press-01"};
    settings.care.wear_bytes = 256 * MIB;
    cn_flaky_store_init(&flaky);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    cn_flaky_store_deinit(&flaky);
    cn_board_tree_remove(root);
    return 0;
}

static void written(uint64_t bytes)
{
    char text[64];

    snprintf(text, sizeof(text), "write_bytes: %llu\n", (unsigned long long)bytes);
    put("proc/self/io", text);
}

// A process that starts at now_ms, as one with counters of its own.
static void begin(struct cn_upkeep *care, uint64_t now_ms)
{
    static const struct cn_progress progress = {.round = 1};

    written(0);
    assert_int_equal(cn_upkeep_init(care, &settings, &flaky.store, root), CN_OK);
    cn_upkeep_poll(care, &progress, now_ms);
}

static enum cn_pause write_until(struct cn_upkeep *care, uint64_t bytes, uint64_t now_ms)
{
    static const struct cn_progress progress = {.round = 1};

    written(bytes);
    cn_upkeep_poll(care, &progress, now_ms);
    return care->care.pause;
}

static void the_day_of_wear_goes_on_after_a_stop(void **state)
{
    struct cn_upkeep care;

    (void)state;
    begin(&care, 1000);
    assert_int_equal(write_until(&care, 200 * MIB + 3, 10000), CN_PAUSE_NONE);
    cn_upkeep_deinit(&care); // stores every byte
    begin(&care, 5000);      // the clock since boot began anew
    assert_int_equal(cn_pause_worn(&care.care, &care.reading), 200 * MIB + 3);
    assert_int_equal(write_until(&care, 56 * MIB - 3, 20000), CN_PAUSE_NONE);
    assert_int_equal(write_until(&care, 56 * MIB - 2, 30000), CN_PAUSE_WEAR);
    cn_upkeep_deinit(&care);
    begin(&care, 5000);
    assert_int_equal(care.care.pause, CN_PAUSE_WEAR);
    cn_upkeep_deinit(&care);
}

static void a_power_cut_forgets_less_than_a_part_of_the_budget(void **state)
{
    struct cn_upkeep care;

    (void)state;
    begin(&care, 1000);
    for (uint64_t bytes = 0, now_ms = 2000; bytes <= 100 * MIB; bytes += MIB / 3, now_ms += 1000)
        write_until(&care, bytes, now_ms);
    cn_sensors_close(care.sensors); // as a power cut: nothing is said
    begin(&care, 1000);
    assert_true(cn_pause_worn(&care.care, &care.reading) > 98 * MIB);
    assert_true(cn_pause_worn(&care.care, &care.reading) <= 100 * MIB);
    cn_upkeep_deinit(&care);
}

static void a_day_that_is_over_counts_no_more(void **state)
{
    struct cn_upkeep care;

    (void)state;
    begin(&care, 1000);
    assert_int_equal(write_until(&care, 257 * MIB, 2000), CN_PAUSE_WEAR);
    assert_int_equal(write_until(&care, 257 * MIB, 1000 + DAY), CN_PAUSE_NONE);
    cn_upkeep_deinit(&care);
    begin(&care, 1000);
    assert_int_equal(care.care.pause, CN_PAUSE_NONE);
    cn_upkeep_deinit(&care);
}

static void each_failure_of_the_disk_leaves_a_count_that_is_whole(void **state)
{
    (void)state;
    for (unsigned number = 1; number <= 4; number++) {
        struct cn_upkeep care;
        uint64_t worn;

        begin(&care, 1000);
        worn = cn_pause_worn(&care.care, &care.reading);
        write_until(&care, 10 * MIB, 2000);
        cn_flaky_store_fail(&flaky, number, true, CN_EIO);
        write_until(&care, 20 * MIB, 3000);
        cn_upkeep_deinit(&care);
        cn_flaky_store_fail(&flaky, 0, false, CN_OK);
        begin(&care, 1000);
        assert_true(cn_pause_worn(&care.care, &care.reading) == worn + 10 * MIB ||
                    cn_pause_worn(&care.care, &care.reading) == worn + 20 * MIB);
        cn_upkeep_deinit(&care);
    }
}

static void a_damaged_file_counts_as_none(void **state)
{
    struct cn_upkeep care;
    uint8_t *bytes;
    size_t size;

    (void)state;
    begin(&care, 1000);
    write_until(&care, 300 * MIB, 2000);
    cn_upkeep_deinit(&care);
    bytes = cn_flaky_store_bytes(&flaky, "care", &size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        struct cn_pause_memory memory;

        bytes[i] ^= 0x10;
        cn_pause_file_load(&flaky.store, &memory);
        assert_int_equal(memory.worn, 0);
        bytes[i] ^= 0x10;
    }
    begin(&care, 1000);
    assert_int_equal(care.care.pause, CN_PAUSE_WEAR);
    cn_upkeep_deinit(&care);
}

static void a_round_takes_energy_where_power_is_measured(void **state)
{
    struct cn_upkeep care;
    struct cn_progress progress = {.round = 1};

    (void)state;
    put("sys/class/hwmon/hwmon1/in1_label", "VDD_IN\n");
    put("sys/class/hwmon/hwmon1/in1_input", "5000\n");
    put("sys/class/hwmon/hwmon1/curr1_input", "2000\n");
    snprintf(settings.care.power_sensors, sizeof(settings.care.power_sensors), "VDD_IN");
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    for (uint64_t now_ms = 1000; now_ms <= 11000; now_ms += 500)
        cn_upkeep_poll(&care, &progress, now_ms);
    progress.round = 2;
    cn_upkeep_poll(&care, &progress, 11500);
    assert_true(care.last_j > 104.9 && care.last_j < 105.1); // 10 W for 10.5 s
    cn_upkeep_deinit(&care);
}

static void without_a_sensor_no_energy_is_claimed(void **state)
{
    struct cn_upkeep care;
    struct cn_progress progress = {.round = 1};

    (void)state;
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    cn_upkeep_poll(&care, &progress, 1000);
    progress.round = 2;
    cn_upkeep_poll(&care, &progress, 5000);
    assert_false(care.measured || care.last_j > 0);
    cn_upkeep_deinit(&care);
}

static void a_round_that_was_told_is_not_told_again(void **state)
{
    struct cn_upkeep care;
    struct cn_progress progress = {.round = 4, .version = 3};

    (void)state;
    snprintf(settings.care.on_round, sizeof(settings.care.on_round), "/bin/true");
    settings.care.hook_limit_ms = 1000;
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    cn_upkeep_poll(&care, &progress, 1000);
    assert_true(care.hooks.slots[CN_HOOK_ROUND].running);
    cn_sensors_close(care.sensors); // killed
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    cn_upkeep_poll(&care, &progress, 1000);
    assert_false(care.hooks.slots[CN_HOOK_ROUND].running);
    progress.round = 5;
    cn_upkeep_poll(&care, &progress, 2000);
    assert_true(care.hooks.slots[CN_HOOK_ROUND].running);
    cn_upkeep_deinit(&care);
}

static void used_up_bytes_do_not_wait_for_the_next_reading(void **state)
{
    const struct cn_progress progress = {.round = 1};
    struct cn_upkeep care;

    (void)state;
    begin(&care, 1000);
    care.care.link = CN_PAUSE_BYTES;
    assert_true(cn_upkeep_poll(&care, &progress, 1001));
    assert_int_equal(care.care.pause, CN_PAUSE_BYTES);
    assert_false(cn_upkeep_poll(&care, &progress, 1002));
    cn_upkeep_deinit(&care);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        CASE(the_day_of_wear_goes_on_after_a_stop),
        CASE(a_power_cut_forgets_less_than_a_part_of_the_budget),
        CASE(a_day_that_is_over_counts_no_more),
        CASE(each_failure_of_the_disk_leaves_a_count_that_is_whole),
        CASE(a_damaged_file_counts_as_none),
        CASE(a_round_takes_energy_where_power_is_measured),
        CASE(without_a_sensor_no_energy_is_claimed),
        CASE(a_round_that_was_told_is_not_told_again),
        CASE(used_up_bytes_do_not_wait_for_the_next_reading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
