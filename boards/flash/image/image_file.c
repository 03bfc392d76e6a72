#include "boards/flash/image/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boards/flash/image/fat.h"
#include "boards/flash/image/mounts.h"
#include "boards/flash/image/system.h"
#include "boards/flash/image/vendor_image.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"

#define STATUS_FILE "/var/lib/dpkg/status"

static int read_table(const struct cn_image_file *image, int file, struct cn_partition_table *table)
{
    uint8_t *head = calloc(1, CN_PARTITION_HEAD);
    ssize_t got = head ? pread(file, head, CN_PARTITION_HEAD, 0) : -1;
    cn_err err = got < 0 ? CN_EIO : cn_partition_read(head, (size_t)got, image->size, table);

    free(head);
    if (err == CN_ENOTFOUND) { // the image may be a file system without a partition table
        table->partitions[0] = (struct cn_partition){.size = image->size};
        table->count = 1;
        return CN_EXIT_DONE;
    }
    if (err == CN_ERANGE)
        cn_console_error("was the download cut off? compare its size with the vendor's",
                         "%s has %" PRIu64 " bytes, and a partition ends beyond that", image->name,
                         image->size);
    else if (err)
        cn_console_error("download it again", "%s: its partition table is damaged", image->name);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Reduces the table to its ext4 partitions and records the FAT partitions in image.
static void keep_file_systems(int file, struct cn_image_file *image,
                              struct cn_partition_table *table, struct cn_superblock *superblocks)
{
    size_t kept = 0;

    for (size_t i = 0; i < table->count; i++) {
        uint8_t block[2048];
        struct cn_superblock found;

        if (pread(file, block, sizeof(block), (off_t)table->partitions[i].offset) !=
            (ssize_t)sizeof(block))
            continue;
        if (cn_partition_is_fat(block)) {
            image->fat = table->partitions[i];
            image->fat_count++;
        }
        if (cn_partition_superblock(block, &found))
            continue;
        table->partitions[kept] = table->partitions[i];
        superblocks[kept++] = found;
    }
    table->count = kept;
}

static bool is_wanted(const struct cn_partition *partition, const struct cn_superblock *superblock,
                      const char *wanted)
{
    char number[12];

    snprintf(number, sizeof(number), "%u", partition->number);
    return strcmp(partition->name, wanted) == 0 || strcmp(superblock->label, wanted) == 0 ||
           strcmp(number, wanted) == 0;
}

// Returns the index of the partition that wanted names. Without wanted: the one with a name that
// vendors use for the root, or else the only one. SIZE_MAX: none.
static size_t choose(const struct cn_partition_table *table,
                     const struct cn_superblock *superblocks, const char *wanted)
{
    static const char *const usual[] = {"APP", "rootfs", "root", "writable", "cloudimg-rootfs"};
    const char *const *names = wanted ? &wanted : usual;
    size_t count = wanted ? 1 : sizeof(usual) / sizeof(usual[0]);

    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < table->count; i++)
            if (is_wanted(&table->partitions[i], &superblocks[i], names[n]))
                return i;
    return !wanted && table->count == 1 ? 0 : SIZE_MAX;
}

static int refuse_choice(const struct cn_image_file *image, const struct cn_partition_table *table,
                         const struct cn_superblock *superblocks, const char *wanted)
{
    char list[1024] = "";
    size_t length = 0;

    if (table->count == 0 && cn_vendor_image_check_raw(image->path, image->name))
        return CN_EXIT_FAILED;
    for (size_t i = 0; i < table->count && length < sizeof(list) - 128; i++)
        length += (size_t)snprintf(
            list + length, sizeof(list) - length, "%s%u '%s' (%" PRIu64 " MiB)", i ? ", " : "",
            table->partitions[i].number,
            table->partitions[i].name[0] ? table->partitions[i].name : superblocks[i].label,
            table->partitions[i].size >> 20);
    if (table->count == 0)
        cn_console_error(
            image->fat_count ? "the root of a board is ext4; is it an installer's image?"
                             : "is it an image of a card, unpacked?",
            "%s: no ext4 partition was found%s", image->name, image->fat_count ? ", only FAT" : "");
    else
        cn_console_error("choose one with --partition", "%s: %s%s is not the root; ext4 is on: %s",
                         image->name, wanted ? "partition " : "which one", wanted ? wanted : "",
                         list);
    return CN_EXIT_FAILED;
}

static int find_root(struct cn_image_file *image, const char *wanted)
{
    static struct cn_partition_table table;
    static struct cn_superblock superblocks[CN_PARTITION_MAX];
    struct stat info;
    int file = open(image->path, O_RDONLY | O_CLOEXEC), code = CN_EXIT_FAILED;
    size_t chosen;

    if (file < 0 || fstat(file, &info) || !S_ISREG(info.st_mode)) {
        cn_console_error(NULL, "%s: %s", image->name,
                         file < 0 ? strerror(errno) : "it is not a file");
    } else {
        image->size = (uint64_t)info.st_size;
        code = read_table(image, file, &table);
        if (!code)
            keep_file_systems(file, image, &table, superblocks);
    }
    if (file >= 0)
        close(file);
    if (code)
        return code;
    chosen = choose(&table, superblocks, wanted);
    if (chosen == SIZE_MAX)
        return refuse_choice(image, &table, superblocks, wanted);
    image->root = table.partitions[chosen];
    image->superblock = superblocks[chosen];
    return CN_EXIT_DONE;
}

// Runs one debugfs command and returns what it prints.
static cn_err ask(const struct cn_image_file *image, const char *command,
                  struct cn_process_result *result)
{
    const char *const argv[] = {"debugfs", "-R", command, image->target, NULL};

    return cn_process_run(argv, -1, result);
}

bool cn_image_file_has(const struct cn_image_file *image, const char *path)
{
    struct cn_process_result result;
    char command[CN_PAYLOAD_TARGET + 16];
    bool found;

    snprintf(command, sizeof(command), "stat %s", path);
    found = ask(image, command, &result) == CN_OK && result.out.size > 6 &&
            memcmp(result.out.data, "Inode:", 6) == 0;
    cn_process_deinit(&result);
    return found;
}

cn_err cn_image_file_cat(const struct cn_image_file *image, const char *path,
                         struct cn_process_result *result)
{
    char command[CN_PAYLOAD_TARGET + 16];

    snprintf(command, sizeof(command), "cat %s", path);
    return ask(image, command, result);
}

static int check_file_system(const struct cn_image_file *image, const char *when)
{
    const char *const argv[] = {"e2fsck", "-fn", image->target, NULL};
    struct cn_process_result result;
    cn_err err = cn_process_run(argv, -1, &result);
    int code = !err && result.code == 0 ? CN_EXIT_DONE : CN_EXIT_FAILED;

    if (code && result.code == 127)
        cn_console_error("install e2fsprogs", "e2fsck and debugfs are needed");
    else if (code)
        cn_console_error("check the image with e2fsck", "%s: its root is not consistent %s",
                         image->name, when);
    cn_process_deinit(&result);
    return code;
}

static int check_system(struct cn_image_file *image, const char *architecture)
{
    struct cn_process_result result;
    struct cn_system system = {0};
    cn_err err = ask(image, "cat " STATUS_FILE, &result);

    if (!err && result.out.size && !cn_buffer_append(&result.out, "", 1))
        cn_system_read((const char *)result.out.data, &system);
    cn_process_deinit(&result);
    memcpy(image->architecture, system.architecture, sizeof(image->architecture));
    memcpy(image->libc, system.libc, sizeof(image->libc));
    if (!system.architecture[0]) {
        cn_console_error(
            "the root must hold a Debian or Ubuntu system; --partition chooses another",
            "%s: partition %u has no package database with libc6", image->name, image->root.number);
        return CN_EXIT_FAILED;
    }
    return cn_system_check(&system, architecture, image->name);
}

// Reads the target of the default.target link from debugfs's line 'Fast link dest: "TARGET"'.
static void look_for_wizard(const struct cn_image_file *image)
{
    static const char *const commands[] = {"stat /etc/systemd/system/default.target",
                                           "stat /lib/systemd/system/default.target"};

    for (size_t i = 0; i < 2; i++) {
        struct cn_process_result result;
        bool link = ask(image, commands[i], &result) == CN_OK && result.out.size &&
                    !cn_buffer_append(&result.out, "", 1) &&
                    strstr((const char *)result.out.data, "ink dest: ");

        if (link)
            cn_system_note_wizard((const char *)result.out.data, image->name);
        cn_process_deinit(&result);
        if (link)
            return;
    }
}

// Reads the root's /etc/fstab. A root without that file mounts nothing. One that is not read whole
// is refused: a mount that it names could hide what is written.
static int read_fstab(struct cn_image_file *image)
{
    struct cn_process_result result;
    bool whole;

    if (!cn_image_file_has(image, "/etc/fstab"))
        return CN_EXIT_DONE;
    whole =
        ask(image, "cat /etc/fstab", &result) == CN_OK && result.out.size < sizeof(image->fstab);
    if (!whole)
        cn_console_error(NULL, "%s: its /etc/fstab cannot be read, or has more than %zu bytes",
                         image->name, sizeof(image->fstab) - 1);
    else if (result.out.size)
        memcpy(image->fstab, result.out.data, result.out.size);
    cn_process_deinit(&result);
    return whole ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

// Decides where to write a file: sets *in_fat to its path in the FAT partition, or to NULL for the
// root. Returns CN_EXIT_FAILED when another mount of the board would hide the file.
static int find_place(const struct cn_image_file *image, const char *target, const char **in_fat)
{
    struct cn_mount mount;

    *in_fat = NULL;
    if (!cn_mounts_find(image->fstab, target, &mount))
        return CN_EXIT_DONE;
    *in_fat = target + strlen(mount.point);
    return strcmp(mount.type, "vfat") == 0 && image->fat_count == 1 ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

static int check_places(const struct cn_image_file *image, const struct cn_payload *payload)
{
    for (size_t i = 0; i < payload->count; i++) {
        const char *in_fat;

        if (find_place(image, payload->files[i].target, &in_fat) == CN_EXIT_DONE)
            continue;
        cn_console_error("only its root, and one FAT partition, can be written to",
                         "%s: the board mounts another file system over %s", image->name,
                         payload->files[i].target);
        return CN_EXIT_FAILED;
    }
    return CN_EXIT_DONE;
}

int cn_image_file_open(const char *path, const char *name, const char *wanted,
                       const char *architecture, struct cn_image_file *image)
{
    int code;

    *image = (struct cn_image_file){.path = path, .name = name};
    if (strlen(path) > 512 || strchr(path, '?') || path[0] == '-') { // for e2fsprogs
        cn_console_error(NULL,
                         "%s: a path of at most 512 bytes without '?' and no '-' at its start is "
                         "needed",
                         path);
        return CN_EXIT_USAGE;
    }
    code = find_root(image, wanted);
    if (code)
        return code;
    snprintf(image->target, sizeof(image->target), "%s?offset=%" PRIu64, path, image->root.offset);
    if (image->superblock.needs_recovery || !image->superblock.clean) {
        cn_console_error("boot it once and shut it down, or run e2fsck on it",
                         "%s: its root was not unmounted cleanly", name);
        return CN_EXIT_FAILED;
    }
    code = check_file_system(image, "as it came");
    if (!code)
        code = read_fstab(image);
    look_for_wizard(image);
    return code ? code : check_system(image, architecture);
}

int cn_image_file_check_free(const struct cn_image_file *image, const struct cn_payload *payload,
                             bool replace)
{
    static const char *const own[] = {CN_PAYLOAD_ETC "/node.key", CN_PAYLOAD_ETC "/node.yaml"};
    int code;

    for (size_t i = 0; i < 2 && !replace; i++) {
        if (cn_image_file_has(image, own[i])) {
            cn_console_error("--replace writes over it",
                             "%s holds the files of a board already: %s", image->name, own[i]);
            return CN_EXIT_FAILED;
        }
    }
    code = cn_system_check_free(image->superblock.free_size, payload, image->name);
    return code ? code : check_places(image, payload);
}

// Adds a mkdir to the script for each missing folder above path.
static void make_folders(const struct cn_image_file *image, const char *path, FILE *script)
{
    char folder[CN_PAYLOAD_TARGET];

    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(at - path), path);
        if (!cn_image_file_has(image, folder))
            fprintf(script, "mkdir %s\n", folder);
    }
}

static void write_script(const struct cn_image_file *image, const struct cn_workspace *space,
                         const struct cn_payload *payload, FILE *script)
{
    for (size_t i = 0; i < payload->count; i++) {
        const struct cn_payload_file *file = &payload->files[i];
        char staged[CN_WORKSPACE_PATH + 32];
        const char *in_fat;

        find_place(image, file->target, &in_fat);
        if (in_fat)
            continue;
        // debugfs reads a link with a plain name, because the source's path may have any character.
        snprintf(staged, sizeof(staged), "%s/file-%zu", space->path, i);
        unlink(staged);
        if (symlink(file->source, staged))
            continue; // the missing file is noticed when it is read back
        make_folders(image, file->target, script);
        if (cn_image_file_has(image, file->target))
            fprintf(script, "rm %s\n", file->target);
        fprintf(script, "write %s %s\nsif %s mode 0100%03o\nsif %s uid 0\nsif %s gid 0\n", staged,
                file->target, file->target, file->mode, file->target, file->target);
    }
    make_folders(image, CN_PAYLOAD_UNIT_LINK, script);
    if (!cn_image_file_has(image, CN_PAYLOAD_UNIT_LINK))
        fprintf(script, "symlink %s %s\n", CN_PAYLOAD_UNIT_LINK, CN_PAYLOAD_UNIT);
}

static bool run_script(const struct cn_image_file *image, const char *path)
{
    const char *const argv[] = {"debugfs", "-w", "-f", path, image->target, NULL};
    struct cn_process_result result;
    cn_err err = cn_process_run(argv, -1, &result);
    bool ran = !err && result.code == 0;

    cn_process_deinit(&result);
    return ran;
}

// Tells whether the file in the image has the right content, mode and owner.
static bool is_there(const struct cn_image_file *image, const struct cn_payload_file *file)
{
    struct cn_process_result result;
    uint8_t digest[CN_DIGEST_SIZE];
    char command[CN_PAYLOAD_TARGET + 16], mode[32];
    bool same;

    snprintf(command, sizeof(command), "cat %s", file->target);
    same = ask(image, command, &result) == CN_OK && result.out.size == file->size;
    if (same) {
        cn_crypto_digest(file->size ? (const void *)result.out.data : "", file->size, digest);
        same = memcmp(digest, file->digest, CN_DIGEST_SIZE) == 0;
        if (file->size)
            cn_crypto_wipe(result.out.data, result.out.size);
    }
    cn_process_deinit(&result);
    snprintf(command, sizeof(command), "stat %s", file->target);
    snprintf(mode, sizeof(mode), "Mode:  0%03o ", file->mode);
    same = same && ask(image, command, &result) == CN_OK && result.out.size &&
           !cn_buffer_append(&result.out, "", 1) && strstr((char *)result.out.data, mode) &&
           strstr((char *)result.out.data, "User:     0   Group:     0 ");
    cn_process_deinit(&result);
    return same;
}

// Writes the files of the FAT partition and checks them. Checks the files that debugfs has already
// written to the root.
static int finish_files(const struct cn_image_file *image, const struct cn_payload *payload)
{
    for (size_t i = 0; i < payload->count; i++) {
        const struct cn_payload_file *file = &payload->files[i];
        const char *in_fat;
        int code = find_place(image, file->target, &in_fat);

        if (in_fat)
            code = cn_fat_put(image->path, &image->fat, file, in_fat);
        else if (!is_there(image, file)) {
            cn_console_error(
                "is its root full, or does it have features that debugfs cannot write?",
                "%s: %s is not what was written", image->name, file->target);
            code = CN_EXIT_VERIFY;
        }
        if (code)
            return code;
    }
    return CN_EXIT_DONE;
}

int cn_image_file_reread(const struct cn_image_file *image, const struct cn_payload *payload)
{
    for (size_t i = 0; i < payload->count; i++) {
        if (is_there(image, &payload->files[i]))
            continue;
        cn_console_error("the card, its reader or the cable is bad: take another one",
                         "%s: %s is not what was written", image->name, payload->files[i].target);
        return CN_EXIT_VERIFY;
    }
    return CN_EXIT_DONE;
}

int cn_image_file_inject(const struct cn_image_file *image, const struct cn_workspace *space,
                         const struct cn_payload *payload)
{
    char path[CN_WORKSPACE_PATH + 16];
    FILE *script;
    int code;

    snprintf(path, sizeof(path), "%s/script", space->path);
    script = fopen(path, "we");
    if (!script)
        return CN_EXIT_FAILED;
    write_script(image, space, payload, script);
    if (fclose(script) || !run_script(image, path)) {
        cn_console_error(NULL, "%s: debugfs could not write", image->name);
        return CN_EXIT_FAILED;
    }
    code = finish_files(image, payload);
    if (code)
        return code;
    if (!cn_image_file_has(image, CN_PAYLOAD_UNIT_LINK)) {
        cn_console_error(NULL, "%s: the first-boot unit is not enabled", image->name);
        return CN_EXIT_VERIFY;
    }
    cn_console_step("verified", "%zu files are read back and compared", payload->count);
    return check_file_system(image, "after writing");
}
