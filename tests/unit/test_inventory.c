// The inventory that a board sends to the aggregator: its build, system and disk.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/build_version.h"
#include "runtime/round/node/inventory.h"

static char root[64];

static void put(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/etc/%s", root, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_root(void **state)
{
    char path[128];

    (void)state;
    snprintf(root, sizeof(root), "/tmp/cairn-inventory-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(path, sizeof(path), "%s/etc", root);
    return mkdir(path, 0700);
}

static int remove_root(void **state)
{
    static const char *const names[] = {"etc/nv_tegra_release", "etc/os-release", "etc"};
    char path[128];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        remove(path);
    }
    return rmdir(root);
}

static void assert_system(const char *wanted)
{
    char text[CN_SYSTEM_TEXT_SIZE];

    cn_inventory_system(root, text);
    assert_string_equal(text, wanted);
}

static void a_jetson_is_named_by_its_jetpack(void **state)
{
    (void)state;
    put("os-release", "PRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\n");
    put("nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n");
    assert_system("JetPack 6.2 (L4T 36.4.3)");
    put("nv_tegra_release", "# R36 (release), REVISION: 4.9, GCID: 1, BOARD: generic\n");
    assert_system("JetPack 6.2.1 (L4T 36.4.9)");
    put("nv_tegra_release", "# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic\n");
    assert_system("JetPack 7.2 (L4T 39.2.0)");
    put("nv_tegra_release", "# R99 (release), REVISION: 1.0, GCID: 1, BOARD: generic\n");
    assert_system("L4T 99.1.0");
}

static void another_system_is_named_by_its_distribution(void **state)
{
    (void)state;
    put("nv_tegra_release", "nothing that is known\n");
    put("os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
    assert_system("Debian GNU/Linux 12 (bookworm)");
    put("os-release", "PRETTY_NAME='A\tB\xc3\xa9'\n");
    assert_system("A?B??");
    put("os-release", "");
    assert_system("");
}

static void build_and_disk_are_told(void **state)
{
    struct cn_inventory inventory;

    (void)state;
    cn_inventory_take(root, root, &inventory);
    assert_string_equal(inventory.build, cn_build_version);
    assert_true(inventory.disk_size > 0 && inventory.disk_free <= inventory.disk_size);
    cn_inventory_take(root, "/nowhere/at/all", &inventory);
    assert_true(inventory.disk_size == 0 && inventory.disk_free == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_jetson_is_named_by_its_jetpack),
        cmocka_unit_test(another_system_is_named_by_its_distribution),
        cmocka_unit_test(build_and_disk_are_told),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
