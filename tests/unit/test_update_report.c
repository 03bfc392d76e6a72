// The report of a board about its two systems, from the file that cairn-update writes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/round/node/inventory.h"
#include "runtime/round/node/update_report.h"
#include "tests/support/board_tree.h"

static void expect(const char *line, const char *slot, const char *version, const char *update,
                   const char *update_version)
{
    struct cn_inventory inventory;

    memset(&inventory, 0x5a, sizeof(inventory));
    cn_update_report_decode(line, &inventory);
    assert_string_equal(inventory.slot, slot);
    assert_string_equal(inventory.slot_version, version);
    assert_string_equal(inventory.update, update);
    assert_string_equal(inventory.update_version, update_version);
}

static void a_line_has_slot_version_and_result(void **state)
{
    (void)state;
    expect("B 1.4.0 good:1.4.0", "B", "1.4.0", "good", "1.4.0");
    expect("A 1.4.0 rolled-back:1.5.0~rc1+2", "A", "1.4.0", "rolled-back", "1.5.0~rc1+2");
    expect("A unknown trying:unknown", "A", "", "trying", "");
    expect("A unknown none", "A", "", "", "");
}

static void what_is_not_well_formed_tells_nothing(void **state)
{
    static const char *const wrong[] = {"",
                                        "B",
                                        "B 1.4.0",
                                        "B 1.4.0 good:1.4.0 more",
                                        "B 1.4.0 good:",
                                        "B 1.4.0 :1.4.0",
                                        "B 1.4.0 good:1:2",
                                        "B 1;4 good:1.4.0",
                                        "B \x1b[2J good:1.4.0",
                                        "AAAAAAAAAAAA 1.4.0 good:1.4.0",
                                        "\xc3\x84 1 good:1"};
    char line[CN_UPDATE_REPORT_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect(wrong[i], "", "", "", "");
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    expect(line, "", "", "", "");
    memcpy(line, "B 1.4.0 good:", 13);
    expect(line, "", "", "", "");
}

static void a_version_has_63_characters_at_most(void **state)
{
    char version[65], line[CN_UPDATE_REPORT_SIZE];

    (void)state;
    memset(version, '1', 64);
    version[64] = '\0';
    snprintf(line, sizeof(line), "B %s none", version);
    expect(line, "", "", "", "");
    version[63] = '\0';
    snprintf(line, sizeof(line), "B %s good:%s", version, version);
    expect(line, "B", version, "good", version);
}

static void the_inventory_has_it(void **state)
{
    char root[64];
    struct cn_inventory inventory;

    (void)state;
    cn_board_tree_make(root);
    cn_inventory_take(root, root, &inventory);
    assert_string_equal(inventory.slot, "");
    cn_board_tree_put(root, "run/cairn-update/report", "B 1.4.0 good:1.4.0\n");
    cn_inventory_take(root, root, &inventory);
    assert_string_equal(inventory.slot, "B");
    assert_string_equal(inventory.update_version, "1.4.0");
    cn_board_tree_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_slot_version_and_result),
        cmocka_unit_test(what_is_not_well_formed_tells_nothing),
        cmocka_unit_test(a_version_has_63_characters_at_most),
        cmocka_unit_test(the_inventory_has_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
