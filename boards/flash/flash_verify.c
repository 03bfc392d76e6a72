// cairn-flash verify: compares an image or a card with the image's manifest.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/commands.h"
#include "boards/flash/image/manifest.h"
#include "boards/flash/tool/console.h"

static const char help[] =
    "Usage: cairn-flash verify IMAGE [DEVICE] [--json]\n"
    "\n"
    "Compares IMAGE, or the card DEVICE that it was written to, with IMAGE.json: all\n"
    "data and all zeros, except what the image's file systems have not allocated.\n"
    "Exits with 5 when something differs.\n"
    "\n"
    "  --json             one object a line\n";

static int verify(const char *image, const char *target)
{
    struct cn_manifest_file manifest;
    int file, code = cn_manifest_file_load(image, &manifest);

    if (code)
        return code;
    file = open(target, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        cn_console_error(NULL, "%s: %s", target, strerror(errno));
        code = CN_EXIT_FAILED;
    } else {
        code = cn_manifest_file_verify(&manifest, file, target, "verify");
        close(file);
    }
    if (!code)
        cn_console_step("done", "%s holds what %s.json says, for %s", target, image, manifest.name);
    cn_manifest_file_deinit(&manifest);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'}, {0}};
    int option;

    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option != 'j')
            return CN_EXIT_USAGE;
        cn_console_set_json(true);
    }
    if (argc - optind < 1 || argc - optind > 2) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    return verify(argv[optind], argv[argc - 1]);
}

const struct cn_command cn_flash_verify = {
    .name = "verify",
    .summary = "compare an image or a card with what was made",
    .help = help,
    .exits = "5 not what was written",
    .run = run,
};
