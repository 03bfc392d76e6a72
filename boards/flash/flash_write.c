// cairn-flash write: writes an image to a card, reads it back and compares.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/fs.h>

#include "boards/flash/card.h"
#include "boards/flash/commands.h"
#include "boards/flash/console.h"
#include "boards/flash/disk.h"
#include "boards/flash/manifest.h"
#include "boards/flash/process.h"
#include "runtime/port/platform.h"

static const char help[] =
    "Usage: cairn-flash write IMAGE DEVICE [--yes] [--fixed] [--dry-run] [--json]\n"
    "\n"
    "Writes an image made by 'cairn-flash image' to a card, checks the image first,\n"
    "reads the card back and compares. What was on the card before is gone, except\n"
    "where the image's file systems are free; without a whole image it has no\n"
    "partition table. Refuses, with exit code 4, a device that is in use, that is a\n"
    "partition, or that cannot be taken out. Exits with 5 when the card does not\n"
    "hold what was written.\n"
    "\n"
    "  --yes              do not ask\n"
    "  --fixed            the device may be one that cannot be taken out\n"
    "  --dry-run          make all checks, write nothing\n"
    "  --json             one object a line; needs --yes or --dry-run\n";

struct options {
    const char *image, *path;
    bool yes, fixed, dry_run, json;
};

static int refuse(const char *next, const char *path, const char *why)
{
    cn_console_error(next, "%s: %s; nothing was written", path, why);
    return CN_EXIT_UNSAFE;
}

// Opens the device exclusively, because only the kernel knows some of its uses: mounts of a
// container, btrfs, ZFS.
static int check_exclusive(const struct options *options)
{
    int device = open(options->path, O_RDONLY | O_EXCL | O_CLOEXEC);

    if (device < 0)
        return refuse(errno == EBUSY ? "something uses it" : NULL, options->path, strerror(errno));
    close(device);
    return CN_EXIT_DONE;
}

static int check_device(const struct options *options, const struct cn_manifest_file *manifest,
                        struct cn_disk *device)
{
    struct stat info;
    char text[400];

    if (stat(options->path, &info))
        return refuse(NULL, options->path, strerror(errno));
    if (!S_ISBLK(info.st_mode))
        return refuse("a card is a device such as /dev/sdb", options->path,
                      "it is no block device");
    if (!cn_disk_examine("", major(info.st_rdev), minor(info.st_rdev), device))
        return refuse(NULL, options->path, "the kernel does not describe it");
    if (device->partition)
        return refuse("name the whole card", options->path, "it is a partition");
    if (device->use[0]) {
        snprintf(text, sizeof(text), "it is in use: %s", device->use);
        return refuse("unmount it, if it is the right one", options->path, text);
    }
    if (device->read_only)
        return refuse("is the card's lock set?", options->path, "it is read-only");
    if (!device->removable && !options->fixed)
        return refuse("--fixed writes to it all the same", options->path,
                      "it cannot be taken out of this machine");
    if (device->size < manifest->size) {
        snprintf(text, sizeof(text), "it has %llu bytes, the image needs %llu",
                 (unsigned long long)device->size, (unsigned long long)manifest->size);
        return refuse("take a larger card", options->path, text);
    }
    return check_exclusive(options);
}

static int confirm(const struct options *options, const struct cn_disk *device, const char *name)
{
    char answer[16];

    cn_console_step("device", "%s: %s%s%.1f GB; all that is on it will be lost. Image for %s",
                    options->path, device->model, device->model[0] ? ", " : "",
                    (double)device->size / 1e9, name);
    if (options->yes || options->dry_run)
        return CN_EXIT_DONE;
    if (options->json || !isatty(STDIN_FILENO))
        return refuse("--yes says that it may be written", options->path, "nobody was asked");
    printf("Type yes to write to %s: ", options->path);
    fflush(stdout);
    if (fgets(answer, sizeof(answer), stdin) && strcmp(answer, "yes\n") == 0)
        return CN_EXIT_DONE;
    return refuse(NULL, options->path, "not confirmed");
}

static int write_card(const struct options *options, const struct cn_manifest_file *manifest,
                      const struct cn_disk *device, int from)
{
    int to = open(options->path, O_RDWR | O_EXCL | O_CLOEXEC), code;
    uint64_t done = 0, begun_ms = cn_platform_now_ms();

    cn_process_catch_signals();
    if (to < 0)
        return refuse(errno == EBUSY ? "something uses it" : NULL, options->path, strerror(errno));
    if (!cn_card_write(manifest, from, to, device->size, &done)) {
        cn_console_error("is it still there? write the card again, or take another one",
                         "%s: %s after %llu MiB; the card is incomplete and will not boot",
                         options->path, strerror(errno), (unsigned long long)done >> 20);
        close(to);
        return cn_process_interrupted() ? CN_EXIT_INTERRUPTED : CN_EXIT_FAILED;
    }
    cn_console_step("written", "%llu MiB of %llu MiB in %.1f s", (unsigned long long)done >> 20,
                    (unsigned long long)manifest->size >> 20,
                    (double)(cn_platform_now_ms() - begun_ms) / 1000);
    // So that the data read back comes from the card, not from the kernel's cache.
    ioctl(to, BLKFLSBUF, 0);
    posix_fadvise(to, 0, 0, POSIX_FADV_DONTNEED);
    code = cn_manifest_file_verify(manifest, to, options->path, "read back");
    if (!code)
        ioctl(to, BLKRRPART); // an error does no harm: the kernel knows no partitions of the device
    close(to);
    if (code == CN_EXIT_INTERRUPTED)
        cn_console_error("'cairn-flash verify' reads it", "%s is written, but was not read back",
                         options->path);
    else if (code)
        cn_console_error("the card, its reader or the cable is bad: take another one",
                         "%s does not hold what was written", options->path);
    return code;
}

static int write_image(const struct options *options, const struct cn_manifest_file *manifest)
{
    struct cn_disk device;
    int from, code = check_device(options, manifest, &device);

    if (code)
        return code;
    from = open(options->image, O_RDONLY | O_CLOEXEC);
    if (from < 0) {
        cn_console_error(NULL, "%s: %s", options->image, strerror(errno));
        return CN_EXIT_FAILED;
    }
    code = cn_manifest_file_verify(manifest, from, options->image, "check the image");
    if (code)
        cn_console_error("make the image again", "%s is damaged; nothing was written",
                         options->image);
    if (!code)
        code = confirm(options, &device, manifest->name);
    if (!code && !options->dry_run)
        code = write_card(options, manifest, &device, from);
    close(from);
    if (!code)
        cn_console_step("done",
                        options->dry_run ? "%s can take the image of %s"
                                         : "%s is ready for %s; take it out",
                        options->path, manifest->name);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"yes", no_argument, NULL, 'y'},
        {"fixed", no_argument, NULL, 'f'},
        {"dry-run", no_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    struct cn_manifest_file manifest;
    struct options options = {0};
    int option, code;

    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'y')
            options.yes = true;
        else if (option == 'f')
            options.fixed = true;
        else if (option == 'd')
            options.dry_run = true;
        else if (option == 'j')
            cn_console_set_json(options.json = true);
        else
            return CN_EXIT_USAGE;
    }
    if (argc - optind != 2) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    options.image = argv[optind];
    options.path = argv[optind + 1];
    code = cn_manifest_file_load(options.image, &manifest);
    if (!code)
        code = write_image(&options, &manifest);
    cn_manifest_file_deinit(&manifest);
    return code;
}

const struct cn_command cn_flash_write = {
    .name = "write",
    .summary = "write an image to a card and read it back",
    .help = help,
    .exits = "4 unsafe target",
    .run = run,
};
