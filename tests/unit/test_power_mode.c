// Power modes by name, from the files of the boards; and failures to set one.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/port/power_mode.h"
#include "runtime/round/upkeep/upkeep.h"
#include "tests/support/board_tree.h"
#include "tests/support/flaky_store.h"

static char root[64];

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

// What the vendor's program does, as far as it is known: "-m N" sets the mode.
static void put_program(const char *lines)
{
    char text[512], path[128];

    snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", lines);
    cn_board_tree_put(root, "usr/sbin/nvpmodel", text);
    snprintf(path, sizeof(path), "%s/usr/sbin/nvpmodel", root);
    assert_int_equal(chmod(path, 0755), 0);
}

static void put_working_program(void)
{
    char lines[256];

    snprintf(lines, sizeof(lines),
             "[ $1 = -m ] && printf 'pmode:%%04d' $2 >%s/var/lib/nvpmodel/status", root);
    put_program(lines);
}

static void modes_go_by_name_on_every_board(void **state)
{
    static const struct {
        const char *board, *name;
        int id;
    } expected[] = {
        {"jetson-orin-nano-8gb", "15W", 0},  {"jetson-orin-nano-8gb", "MAXN_SUPER", 2},
        {"jetson-orin-nx-16gb", "15W", 2},   {"jetson-orin-nx-16gb", "MAXN", 0},
        {"jetson-agx-orin-64gb", "30W", 2},  {"jetson-agx-orin-64gb", "MODE_50W", 3},
        {"jetson-agx-thor", "120W", 1},      {"jetson-agx-thor", "MAXN", 0},
        {"jetson-agx-orin-64gb", "25W", -1}, {"jetson-orin-nano-8gb", "MAXN", -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct cn_power_mode *mode;
        struct cn_power_modes modes;

        cn_board_tree_lay(root, CAIRN_TEST_DATA, expected[i].board);
        assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
        assert_int_equal(modes.count, 4);
        mode = cn_power_modes_find(&modes, expected[i].name);
        assert_int_equal(mode ? mode->id : -1, expected[i].id);
        assert_null(modes.current); // nothing says which
    }
}

static void the_status_file_says_which_mode_holds(void **state)
{
    struct cn_power_modes modes;

    (void)state;
    cn_board_tree_lay(root, CAIRN_TEST_DATA, "jetson-orin-nano-8gb");
    cn_board_tree_put(root, "var/lib/nvpmodel/status", "pmode:0001\n");
    assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
    assert_string_equal(modes.current->name, "25W");
    cn_board_tree_put(root, "var/lib/nvpmodel/status", "pmode:0003_cool\n");
    assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
    assert_string_equal(modes.current->name, "7W");
    cn_board_tree_put(root, "var/lib/nvpmodel/status", "nothing\n");
    assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
    assert_null(modes.current);
}

static void a_file_of_other_things_names_no_modes(void **state)
{
    static const char *const texts[] = {
        "",
        "POWER_MODEL ID=0 NAME=15W\n",
        "< POWER_MODEL ID=x NAME=15W >\n< POWER_MODEL ID=1 >\n< POWER_MODEL NAME=15W >\n",
        "# < POWER_MODEL ID=0 NAME=15W >\n",
    };
    struct cn_power_modes modes;

    (void)state;
    assert_int_equal(cn_power_modes_read(root, &modes), CN_ENOTFOUND);
    for (size_t i = 0; i < 4; i++) {
        cn_board_tree_put(root, "etc/nvpmodel.conf", texts[i]);
        assert_int_equal(cn_power_modes_read(root, &modes), CN_EFORMAT);
    }
    cn_board_tree_put(root, "etc/nvpmodel.conf", "< POWER_MODEL NAME=MAXN ID=3 >\n");
    assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
    assert_int_equal(modes.modes[0].id, 3);
}

static void setting_a_mode_needs_root_and_is_checked(void **state)
{
    struct cn_power_modes modes;
    const struct cn_power_mode *mode;

    (void)state;
    cn_board_tree_lay(root, CAIRN_TEST_DATA, "jetson-orin-nano-8gb");
    cn_board_tree_put(root, "var/lib/nvpmodel/status", "pmode:0001");
    assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
    mode = cn_power_modes_find(&modes, "15W");
    assert_int_equal(cn_power_mode_set(root, mode), CN_ENOTFOUND); // no program
    put_working_program();
    if (geteuid() != 0) {
        assert_int_equal(cn_power_mode_set(root, mode), CN_EAUTH);
        return;
    }
    assert_int_equal(cn_power_mode_set(root, mode), CN_OK);
    assert_int_equal(cn_power_modes_read(root, &modes), CN_OK);
    assert_string_equal(modes.current->name, "15W");
    put_program("exit 3");
    assert_int_equal(cn_power_mode_set(root, mode), CN_EIO);
    put_program("read answer && exit 1; exit 0"); // wants a restart of the board: nothing changed
    assert_int_equal(cn_power_mode_set(root, cn_power_modes_find(&modes, "25W")), CN_EIO);
}

static void a_node_takes_the_first_mode_that_its_board_has(void **state)
{
    static struct cn_settings settings = {.care.power_mode = "10W 15W"};
    static struct cn_upkeep care;
    struct cn_flaky_store flaky;

    (void)state;
    cn_flaky_store_init(&flaky);
    cn_board_tree_lay(root, CAIRN_TEST_DATA, "jetson-orin-nano-8gb");
    cn_board_tree_put(root, "var/lib/nvpmodel/status", "pmode:0001");
    put_working_program();
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    assert_string_equal(care.power_mode,
                        geteuid() ? "25W" : "15W"); // what holds, not what is wanted
    cn_upkeep_deinit(&care);
    snprintf(settings.care.power_mode, sizeof(settings.care.power_mode), "40W");
    assert_int_equal(cn_upkeep_init(&care, &settings, &flaky.store, root), CN_OK);
    assert_string_equal(care.power_mode, geteuid() ? "25W" : "15W");
    cn_upkeep_deinit(&care);
    cn_flaky_store_deinit(&flaky);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        CASE(modes_go_by_name_on_every_board),
        CASE(the_status_file_says_which_mode_holds),
        CASE(a_file_of_other_things_names_no_modes),
        CASE(setting_a_mode_needs_root_and_is_checked),
        CASE(a_node_takes_the_first_mode_that_its_board_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
