#include "boards/flash/card/disk.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "runtime/base/text_file.h"

#define PATH_SIZE 4352 // a path of PATH_MAX bytes and a name

static bool has(const char *folder, const char *name)
{
    char path[PATH_SIZE + 128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

// Finds where the device number (such as "8:1") is mounted, from mountinfo.
static bool find_mount(const char *root, const char *number, char *point, size_t size)
{
    char path[PATH_SIZE + 128], line[4096];
    FILE *file;
    bool found = false;

    snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
    file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file)) {
        char device[32], where[1024];

        found = sscanf(line, "%*s %*s %31s %*s %1023s", device, where) == 2 &&
                strcmp(device, number) == 0;
        if (found)
            snprintf(point, size, "%.100s", where);
    }
    if (file)
        fclose(file);
    return found;
}

static bool is_swap(const char *root, const char *name)
{
    char path[PATH_SIZE + 128], line[1024], wanted[80];
    FILE *file;
    bool found = false;

    snprintf(path, sizeof(path), "%s/proc/swaps", root);
    snprintf(wanted, sizeof(wanted), "/dev/%s", name);
    file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, wanted, strlen(wanted)) == 0 &&
                isspace((unsigned char)line[strlen(wanted)]);
    if (file)
        fclose(file);
    return found;
}

// Finds a device that is built on this one, such as device mapper or RAID.
static bool find_holder(const char *folder, char *holder, size_t size)
{
    char path[PATH_SIZE + 128];
    const struct dirent *entry;
    bool found = false;
    DIR *list;

    snprintf(path, sizeof(path), "%s/holders", folder);
    list = opendir(path);
    while (list && !found && (entry = readdir(list))) {
        found = entry->d_name[0] != '.';
        if (found)
            snprintf(holder, size, "%.63s", entry->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

// Finds a loop device whose backing file is the device number (such as "8:1") itself.
static bool find_loop(const char *root, const char *name, const char *number, char *loop,
                      size_t size)
{
    char path[PATH_SIZE + 128], backing[1024], device[1040], wanted[80];
    const struct dirent *entry;
    bool found = false;
    DIR *list;

    snprintf(path, sizeof(path), "%s/sys/block", root);
    snprintf(wanted, sizeof(wanted), "/dev/%s", name);
    list = opendir(path);
    while (list && !found && (entry = readdir(list))) {
        struct stat info;

        snprintf(path, sizeof(path), "%s/sys/block/%s/loop", root, entry->d_name);
        if (!cn_text_file_line(path, "backing_file", backing, sizeof(backing)))
            continue;
        found = strcmp(backing, wanted) == 0;
        snprintf(device, sizeof(device), "%s%s", root, backing);
        if (!found && stat(device, &info) == 0 && S_ISBLK(info.st_mode)) {
            snprintf(device, sizeof(device), "%u:%u", major(info.st_rdev), minor(info.st_rdev));
            found = strcmp(device, number) == 0;
        }
        if (found)
            snprintf(loop, size, "%.63s", entry->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

static void find_use(const char *root, const char *folder, const char *name, struct cn_disk *device)
{
    char number[32], what[128];

    if (device->use[0])
        return;
    if (!cn_text_file_line(folder, "dev", number, sizeof(number)))
        number[0] = '\0';
    if (find_mount(root, number, what, sizeof(what)))
        snprintf(device->use, sizeof(device->use), "%s is mounted from %.63s", what, name);
    else if (is_swap(root, name))
        snprintf(device->use, sizeof(device->use), "%.63s is swap space", name);
    else if (find_holder(folder, what, sizeof(what)) ||
             find_loop(root, name, number, what, sizeof(what)))
        snprintf(device->use, sizeof(device->use), "%s is made of %.63s", what, name);
}

// Looks for uses of the disk and of each partition: a folder of the disk that has a file
// "partition".
static void find_uses(const char *root, const char *folder, struct cn_disk *device)
{
    const struct dirent *entry;
    DIR *list;

    find_use(root, folder, device->name, device);
    list = opendir(folder);
    while (list && (entry = readdir(list))) {
        char part[PATH_SIZE];

        snprintf(part, sizeof(part), "%.4000s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && has(part, "partition"))
            find_use(root, part, entry->d_name, device);
    }
    if (list)
        closedir(list);
}

// Decides whether a disk can be taken out. The mmc subsystem does not mark SD cards as removable,
// so their type is checked; USB disks count as removable.
static bool is_removable(const char *folder)
{
    char text[32];

    if (cn_text_file_line(folder, "removable", text, sizeof(text)) && strcmp(text, "1") == 0)
        return true;
    if (cn_text_file_line(folder, "device/type", text, sizeof(text)) && strcmp(text, "SD") == 0)
        return true;
    return strstr(folder, "/usb") != NULL;
}

bool cn_disk_examine(const char *root, unsigned major, unsigned minor, struct cn_disk *device)
{
    char path[PATH_SIZE], text[64];
    char *folder;

    *device = (struct cn_disk){0};
    snprintf(path, sizeof(path), "%s/sys/dev/block/%u:%u", root, major, minor);
    folder = realpath(path, NULL);
    if (!folder)
        return false;
    snprintf(device->name, sizeof(device->name), "%.63s", strrchr(folder, '/') + 1);
    device->partition = has(folder, "partition");
    device->removable = is_removable(folder);
    device->read_only =
        cn_text_file_line(folder, "ro", text, sizeof(text)) && strcmp(text, "0") != 0;
    if (cn_text_file_line(folder, "size", text, sizeof(text)))
        // sysfs counts sectors of 512 bytes, whatever the device's sector size.
        device->size = strtoull(text, NULL, 10) * 512;
    if (!cn_text_file_line(folder, "device/model", device->model, sizeof(device->model)))
        cn_text_file_line(folder, "device/name", device->model, sizeof(device->model));
    find_uses(root, folder, device);
    free(folder);
    return true;
}
