// cairn-flash write: writes an image to a card, reads it back and compares.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/fs.h>

#include "boards/flash/card/card.h"
#include "boards/flash/card/card_device.h"
#include "boards/flash/commands.h"
#include "boards/flash/image/manifest.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
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
    struct cn_card_permission permission;
};

static int write_card(const struct options *options, const struct cn_manifest_file *manifest,
                      const struct cn_disk *device, int from)
{
    int to = open(options->path, O_RDWR | O_EXCL | O_CLOEXEC), code;
    uint64_t done = 0, begun_ms = cn_platform_now_ms();

    cn_process_catch_signals();
    if (to < 0)
        return cn_card_device_refuse(errno == EBUSY ? "something uses it" : NULL, options->path,
                                     strerror(errno));
    if (!cn_card_write(manifest, from, to, device->size, &done)) {
        cn_console_error("is it still there? write the card again, or take another one",
                         "%s: %s after %" PRIu64 " MiB; the card is incomplete and will not boot",
                         options->path, strerror(errno), done >> 20);
        close(to);
        return cn_process_interrupted() ? CN_EXIT_INTERRUPTED : CN_EXIT_FAILED;
    }
    cn_console_step("written", "%" PRIu64 " MiB of %" PRIu64 " MiB in %.1f s", done >> 20,
                    manifest->size >> 20, (double)(cn_platform_now_ms() - begun_ms) / 1000);
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
    int from,
        code = cn_card_device_check(options->path, manifest->size, &options->permission, &device);

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
        code = cn_card_device_confirm(options->path, &device, manifest->name, &options->permission);
    if (!code && !options->permission.dry_run)
        code = write_card(options, manifest, &device, from);
    close(from);
    if (!code)
        cn_console_step("done",
                        options->permission.dry_run ? "%s can take the image of %s"
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
            options.permission.yes = true;
        else if (option == 'f')
            options.permission.fixed = true;
        else if (option == 'd')
            options.permission.dry_run = true;
        else if (option == 'j')
            cn_console_set_json(options.permission.json = true);
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
