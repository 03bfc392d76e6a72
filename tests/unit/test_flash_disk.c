// The description of block devices from recorded facts, and the contents of partition tables.
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

#include "boards/flash/card/disk.h"
#include "boards/flash/image/mounts.h"
#include "boards/flash/image/partition.h"

static char root[64];

// Writes a file below root with the folders above it.
static void put(const char *path, const char *text)
{
    char full[512];
    FILE *file;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *at = strchr(full + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// /sys/dev/block/8:16 is a link to the device's folder.
static void put_device(const char *number, const char *folder)
{
    char link[512], target[512];

    put("sys/dev/block/.here", "");
    snprintf(link, sizeof(link), "%s/sys/dev/block/%s", root, number);
    snprintf(target, sizeof(target), "%s/%s", root, folder);
    assert_int_equal(symlink(target, link), 0);
}

static int make_machine(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/cairn-disk-XXXXXX");
    assert_non_null(mkdtemp(root));
#define USB "sys/devices/pci0000:00/usb2/2-1/block/sdb"
#define NVME "sys/devices/pci0000:01/nvme/nvme0/nvme0n1"
#define MMC "sys/devices/platform/mmc0/mmc0:0001/block/mmcblk0"
    put(USB "/size", "62333952\n");
    put(USB "/dev", "8:16\n");
    put(USB "/removable", "1\n");
    put(USB "/ro", "0\n");
    put(USB "/device/model", "SD Reader  \n");
    put(USB "/sdb1/dev", "8:17\n");
    put(USB "/sdb1/partition", "1\n");
    put(NVME "/size", "1000215216\n");
    put(NVME "/dev", "259:0\n");
    put(NVME "/removable", "0\n");
    put(NVME "/ro", "0\n");
    put(NVME "/nvme0n1p2/dev", "259:2\n");
    put(NVME "/nvme0n1p2/partition", "2\n");
    put(MMC "/size", "30000000\n");
    put(MMC "/dev", "179:0\n");
    put(MMC "/removable", "0\n");
    put(MMC "/ro", "1\n");
    put(MMC "/device/type", "SD\n");
    put("proc/self/mountinfo", "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
                               "30 22 0:25 / /proc rw - proc proc rw\n");
    put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
    put_device("8:16", USB);
    put_device("8:17", USB "/sdb1");
    put_device("259:0", NVME);
    put_device("179:0", MMC);
    return 0;
}

static int remove_machine(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static void a_card_in_a_reader_may_be_written(void **state)
{
    struct cn_disk disk;

    (void)state;
    assert_true(cn_disk_examine(root, 8, 16, &disk));
    assert_string_equal(disk.name, "sdb");
    assert_string_equal(disk.model, "SD Reader");
    assert_true(disk.size == 62333952ull * 512);
    assert_true(disk.removable && !disk.partition && !disk.read_only);
    assert_string_equal(disk.use, "");
}

static void a_partition_is_known_as_one(void **state)
{
    struct cn_disk disk;

    (void)state;
    assert_true(cn_disk_examine(root, 8, 17, &disk));
    assert_true(disk.partition);
}

static void the_disk_of_the_system_is_in_use(void **state)
{
    struct cn_disk disk;

    (void)state;
    assert_true(cn_disk_examine(root, 259, 0, &disk));
    assert_false(disk.removable);
    assert_string_equal(disk.use, "/ is mounted from nvme0n1p2");
}

static void a_locked_card_of_a_built_in_reader_is_a_card(void **state)
{
    struct cn_disk disk;

    (void)state;
    assert_true(cn_disk_examine(root, 179, 0, &disk));
    assert_true(disk.removable && disk.read_only);
}

static void swap_and_parts_of_arrays_are_in_use(void **state)
{
    struct cn_disk disk;

    (void)state;
    put("proc/swaps", "Filename\tType\n/dev/sdb1                partition\t8\n");
    assert_true(cn_disk_examine(root, 8, 16, &disk));
    assert_string_equal(disk.use, "sdb1 is swap space");
    put("proc/swaps", "Filename\tType\n/dev/sdb11               partition\t8\n");
    assert_true(cn_disk_examine(root, 8, 16, &disk));
    assert_string_equal(disk.use, "");
    put(USB "/sdb1/holders/md0", "");
    assert_true(cn_disk_examine(root, 8, 16, &disk));
    assert_string_equal(disk.use, "md0 is made of sdb1");
}

static void a_card_below_a_loop_device_is_in_use(void **state)
{
    struct cn_disk disk;

    (void)state;
    put("sys/block/loop0/loop/backing_file", "/home/sdb\n");
    assert_true(cn_disk_examine(root, 8, 16, &disk));
    assert_string_equal(disk.use, "");
    put("sys/block/loop1/loop/backing_file", "/dev/sdb\n");
    assert_true(cn_disk_examine(root, 8, 16, &disk));
    assert_string_equal(disk.use, "loop1 is made of sdb");
    put("sys/block/loop1/loop/backing_file", "\n");
}

static void what_the_kernel_does_not_know_is_no_device(void **state)
{
    struct cn_disk disk;

    (void)state;
    assert_false(cn_disk_examine(root, 1, 2, &disk));
}

static void read_corpus(const char *name, uint8_t *data, size_t limit, size_t *size)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/../fuzz/corpus/partition/%s", CAIRN_TEST_DATA, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    *size = fread(data, 1, limit, file);
    fclose(file);
}

static void tables_of_other_programs_are_read(void **state)
{
    static struct cn_partition_table table;
    static uint8_t head[CN_PARTITION_HEAD];
    const uint64_t disk = 64u << 20;
    size_t size;

    (void)state;
    read_corpus("gpt", head, sizeof(head), &size);
    assert_int_equal(cn_partition_read(head, size, disk, &table), CN_OK);
    assert_true(table.gpt && table.count == 2);
    assert_string_equal(table.partitions[0].name, "APP");
    assert_true(table.partitions[0].offset == 1u << 20 && table.partitions[0].size == 30u << 20);
    assert_string_equal(table.partitions[1].name, "data");
    assert_int_equal(cn_partition_read(head, size, 8u << 20, &table), CN_ERANGE);
    read_corpus("mbr", head, sizeof(head), &size);
    assert_int_equal(cn_partition_read(head, size, disk, &table), CN_OK);
    assert_true(!table.gpt && table.count == 2 && table.partitions[1].number == 2);
    read_corpus("gpt-header-flipped", head, sizeof(head), &size);
    assert_int_equal(cn_partition_read(head, size, disk, &table), CN_EFORMAT);
    read_corpus("gpt-entry-flipped", head, sizeof(head), &size);
    assert_int_equal(cn_partition_read(head, size, disk, &table), CN_EFORMAT);
}

static void an_ext4_superblock_is_read(void **state)
{
    struct cn_superblock superblock;
    uint8_t block[2048];
    size_t size;

    (void)state;
    read_corpus("ext4", block, sizeof(block), &size);
    assert_int_equal(cn_partition_superblock(block, &superblock), CN_OK);
    assert_true(superblock.size == 8u << 20 && superblock.free_size < superblock.size);
    assert_true(superblock.clean && !superblock.needs_recovery);
    block[1024 + 0x38] ^= 1;
    assert_int_equal(cn_partition_superblock(block, &superblock), CN_ENOTFOUND);
}

static void the_longest_mount_point_above_a_path_holds_it(void **state)
{
    static const char fstab[] =
        "# as Raspberry Pi OS has it\n"
        "proc            /proc           proc    defaults          0       0\n"
        "PARTUUID=1-01  /boot/firmware/ vfat    defaults          0       2\n"
        "PARTUUID=1-02  /               ext4    defaults,noatime  0       1\n"
        "none /boot tmpfs\n"
        "swap none swap sw 0 0\n"
        "half /srv";
    struct cn_mount mount;

    (void)state;
    assert_true(cn_mounts_find(fstab, "/boot/firmware/config.txt", &mount));
    assert_string_equal(mount.point, "/boot/firmware");
    assert_string_equal(mount.type, "vfat");
    assert_true(cn_mounts_find(fstab, "/boot/grub", &mount));
    assert_string_equal(mount.type, "tmpfs");
    assert_false(cn_mounts_find(fstab, "/etc/cairn/node.key", &mount));
    assert_false(cn_mounts_find(fstab, "/bootloader/x", &mount));
    assert_false(cn_mounts_find(fstab, "/srv/x", &mount));
    assert_false(cn_mounts_find("", "/boot/x", &mount));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_in_a_reader_may_be_written),
        cmocka_unit_test(a_partition_is_known_as_one),
        cmocka_unit_test(the_disk_of_the_system_is_in_use),
        cmocka_unit_test(a_locked_card_of_a_built_in_reader_is_a_card),
        cmocka_unit_test(a_card_below_a_loop_device_is_in_use),
        cmocka_unit_test(swap_and_parts_of_arrays_are_in_use),
        cmocka_unit_test(what_the_kernel_does_not_know_is_no_device),
        cmocka_unit_test(tables_of_other_programs_are_read),
        cmocka_unit_test(an_ext4_superblock_is_read),
        cmocka_unit_test(the_longest_mount_point_above_a_path_holds_it),
    };

    return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
