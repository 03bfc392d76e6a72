// A type of board is recognised by the names that its firmware gives; the examples of sites load.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/board_find.h"
#include "runtime/profile/profile.h"
#include "tests/support/board_tree.h"

#define BOARDS CAIRN_TEST_DATA "/../../boards"

// A tree with one file of the firmware's; the caller removes it.
static void put(char root[64], const char *path, const char *content, size_t size)
{
    char command[512];
    FILE *file;

    snprintf(root, 64, "/tmp/cairn-board-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(command, sizeof(command), "mkdir -p $(dirname %s/%s)", root, path);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof(command), "%s/%s", root, path);
    file = fopen(command, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, size, file), size);
    fclose(file);
}

static void finish(const char *root)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static void expect(const char *compatible, size_t size, const char *expected)
{
    static struct cn_board_identity identity;
    char root[64], board[CN_NAME_SIZE] = "";

    put(root, "sys/firmware/devicetree/base/compatible", compatible, size);
    cn_board_find_identity(root, &identity);
    finish(root);
    assert_int_equal(cn_board_find(BOARDS, &identity, board), expected != NULL);
    if (expected)
        assert_string_equal(board, expected);
}

static void boards_are_known_by_their_device_tree(void **state)
{
#define TREE(text) text, sizeof(text)
    (void)state;
    expect(TREE("nvidia,p3768-0000+p3767-0005-super\0nvidia,p3767-0005\0nvidia,tegra234"),
           "jetson-orin-nano-8gb");
    expect(TREE("nvidia,p3768-0000+p3767-0000\0nvidia,p3767-0000\0nvidia,tegra234"),
           "jetson-orin-nx-16gb");
    expect(TREE("nvidia,p3737-0000+p3701-0005\0nvidia,tegra234"), "jetson-agx-orin-64gb");
    expect(TREE("nvidia,p3971-0089+p3834-0008\0nvidia,tegra264"), "jetson-agx-thor");
    expect(TREE("raspberrypi,5-model-b\0brcm,bcm2712"), "raspberrypi-5");
    expect(TREE("linux,dummy-virt"), "qemu-virt-arm64");
    expect(TREE("nvidia,tegra234"), NULL); // a chip on many boards
    expect(TREE("acme,unknown"), NULL);
    expect("", 0, NULL);
}

static void the_most_specific_name_decides(void **state)
{
    char root[64], board[CN_NAME_SIZE] = "";
    struct cn_board_identity identity = {.names = {"acme,board-2", "acme,board", "acme,chip"},
                                         .count = 3};

    (void)state;
    put(root, "general/compatible", "acme,chip\nacme,board\n", 21);
    assert_true(cn_board_find(root, &identity, board));
    assert_string_equal(board, "general");
    identity.count = 1;
    assert_false(cn_board_find(root, &identity, board));
    finish(root);
}

static void every_recorded_board_is_recognised(void **state)
{
    static const char *const boards[] = {
        "jetson-orin-nano-8gb", "jetson-orin-nx-16gb", "jetson-agx-orin-64gb", "jetson-agx-thor",
        "raspberrypi-5",        "qemu-virt-arm64",     "gateway-x86"};
    static struct cn_board_identity identity;

    (void)state;
    for (size_t i = 0; i < 7; i++) {
        char root[64], board[CN_NAME_SIZE] = "";

        cn_board_tree_make(root);
        cn_board_tree_lay(root, CAIRN_TEST_DATA, boards[i]);
        cn_board_find_identity(root, &identity);
        cn_board_tree_remove(root);
        assert_true(cn_board_find(BOARDS, &identity, board));
        assert_string_equal(board, boards[i]);
    }
}

static void a_machine_without_a_tree_is_known_by_dmi(void **state)
{
    static struct cn_board_identity identity;
    char root[64], board[CN_NAME_SIZE] = "";

    (void)state;
    cn_board_tree_make(root);
    cn_board_tree_put(root, "sys/class/dmi/id/product_name", "Edge 9\n");
    cn_board_tree_put(root, "proc/sys/kernel/arch", "aarch64\n");
    cn_board_find_identity(root, &identity);
    cn_board_tree_remove(root);
    assert_int_equal(identity.count, 2);
    assert_string_equal(identity.names[0], "dmi: Edge 9");
    assert_string_equal(identity.names[1], "dmi:aarch64");
    assert_false(cn_board_find(BOARDS, &identity, board)); // not every server is the x86 gateway
}

static void the_examples_are_profiles_of_boards(void **state)
{
    static const char *const examples[] = {"plant/press-01", "plant/press-02", "plant/press-03",
                                           "plant/press-04", "fleet/vehicle"};
    static struct cn_diag diag;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        struct cn_profile *profile = NULL;
        char path[512];

        snprintf(path, sizeof(path), "%s/examples/%s.yaml", BOARDS, examples[i]);
        cn_diag_init(&diag);
        if (cn_profile_load(path, &diag, &profile) ||
            cn_profile_require(profile, CN_PROFILE_NODE, &diag))
            fail_msg("%s", cn_diag_first(&diag));
        cn_profile_free(profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boards_are_known_by_their_device_tree),
        cmocka_unit_test(the_most_specific_name_decides),
        cmocka_unit_test(every_recorded_board_is_recognised),
        cmocka_unit_test(a_machine_without_a_tree_is_known_by_dmi),
        cmocka_unit_test(the_examples_are_profiles_of_boards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
