#include "boards/flash/card/card_device.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "runtime/command/command.h"

int cn_card_device_refuse(const char *next, const char *path, const char *why)
{
    cn_console_error(next, "%s: %s; nothing was written", path, why);
    return CN_EXIT_UNSAFE;
}

// Opens the device exclusively, because only the kernel knows some of its uses: mounts of a
// container, btrfs, ZFS.
static int check_exclusive(const char *path)
{
    int device = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);

    if (device < 0)
        return cn_card_device_refuse(errno == EBUSY ? "something uses it" : NULL, path,
                                     strerror(errno));
    close(device);
    return CN_EXIT_DONE;
}

int cn_card_device_check(const char *path, uint64_t needed_size,
                         const struct cn_card_permission *permission, struct cn_disk *device)
{
    struct stat info;
    char text[400];

    if (stat(path, &info))
        return cn_card_device_refuse(NULL, path, strerror(errno));
    if (!S_ISBLK(info.st_mode))
        return cn_card_device_refuse("a card is a device such as /dev/sdb", path,
                                     "it is no block device");
    if (!cn_disk_examine("", major(info.st_rdev), minor(info.st_rdev), device))
        return cn_card_device_refuse(NULL, path, "the kernel does not describe it");
    if (device->partition)
        return cn_card_device_refuse("name the whole card", path, "it is a partition");
    if (device->use[0]) {
        snprintf(text, sizeof(text), "it is in use: %s", device->use);
        return cn_card_device_refuse("unmount it, if it is the right one", path, text);
    }
    if (device->read_only)
        return cn_card_device_refuse("is the card's lock set?", path, "it is read-only");
    if (!device->removable && !permission->fixed)
        return cn_card_device_refuse("--fixed writes to it all the same", path,
                                     "it cannot be taken out of this machine");
    if (device->size < needed_size) {
        snprintf(text, sizeof(text), "it has %" PRIu64 " bytes, the image needs %" PRIu64,
                 device->size, needed_size);
        return cn_card_device_refuse("take a larger card", path, text);
    }
    return check_exclusive(path);
}

int cn_card_device_confirm(const char *path, const struct cn_disk *device, const char *board,
                           const struct cn_card_permission *permission)
{
    char answer[16];

    cn_console_step("device", "%s: %s%s%.1f GB; all that is on it will be lost. Image for %s", path,
                    device->model, device->model[0] ? ", " : "", (double)device->size / 1e9, board);
    if (permission->yes || permission->dry_run)
        return CN_EXIT_DONE;
    if (permission->json || !isatty(STDIN_FILENO))
        return cn_card_device_refuse("--yes says that it may be written", path, "nobody was asked");
    printf("Type yes to write to %s: ", path);
    fflush(stdout);
    if (fgets(answer, sizeof(answer), stdin) && strcmp(answer, "yes\n") == 0)
        return CN_EXIT_DONE;
    return cn_card_device_refuse(NULL, path, "not confirmed");
}
