// cairn-flash bundle: makes a signed update for boards with two systems.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "boards/flash/commands.h"
#include "boards/flash/image/l4t_release.h"
#include "boards/flash/image/vendor_image.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "boards/flash/update/bundle.h"
#include "boards/flash/update/slot_root.h"
#include "runtime/base/whole_number.h"

#define SLOT_MAX 1048576 // MiB

static const char help[] =
    "Usage: cairn-flash bundle --base IMAGE --deb FILE... --version V\n"
    "                          --cert CERT --key KEY -o OUT\n"
    "\n"
    "Makes OUT, a signed RAUC bundle that updates all boards of a kind: the root of\n"
    "IMAGE with the packages. It has no key and no profile; boards keep theirs on\n"
    "another partition. Which boards take it is what its /etc/rauc/system.conf calls\n"
    "'compatible'. The keyring that this file names must trust CERT. Needs rauc and\n"
    "squashfs-tools. Exits with 5 when what was written is not read back.\n"
    "\n"
    "  --base IMAGE       the vendor's image (.img, .img.zst, .img.xz, .img.gz)\n"
    "  --partition P      its root, by name, label or number, when it cannot be told\n"
    "  --deb FILE         package to install, up to 4 times, in order\n"
    "  --add FILE:PATH    another file, readable by all on the boards, up to 16 times\n"
    "  --version V        version of the system, such as 1.4.0\n"
    "  --cert CERT        certificate of the signer: a file or a PKCS#11 URL\n"
    "  --key KEY          its key, the same; it is only passed to rauc\n"
    "  --slot MIB         size of the smallest slot: a larger root is refused\n"
    "  -o OUT             the bundle, usually *.raucb\n"
    "  --json             one object a line\n";

enum option_code { BASE = 1, PARTITION, DEB, ADD, VERSION, CERT, KEY, SLOT, JSON };

struct bundle_options {
    struct cn_target_options target; // base, partition, packages, extras
    struct cn_bundle bundle;
};

static bool take_slot(struct cn_bundle *bundle)
{
    uint64_t mib;

    if (!cn_whole_number_read(optarg, 1, SLOT_MAX, &mib)) {
        cn_console_error(NULL, "--slot '%s': whole MiB from 1 to %d are expected", optarg,
                         SLOT_MAX);
        return false;
    }
    bundle->slot_size = mib << 20;
    return true;
}

static bool take(struct bundle_options *options, int code)
{
    struct cn_target_options *target = &options->target;

    switch (code) {
    case BASE:
        target->base = optarg;
        return true;
    case PARTITION:
        target->partition = optarg;
        return true;
    case DEB:
        return cn_target_add_package(target, optarg);
    case ADD:
        return cn_target_add_extra(target, optarg);
    case VERSION:
        options->bundle.version = optarg;
        return true;
    case CERT:
        options->bundle.certificate = optarg;
        return true;
    case KEY:
        options->bundle.key = optarg;
        return true;
    case SLOT:
        return take_slot(&options->bundle);
    case JSON:
        cn_console_set_json(true);
        return true;
    case 'o':
        options->bundle.out = optarg;
        return true;
    default:
        return false;
    }
}

static int parse(int argc, char **argv, struct bundle_options *options)
{
    static const struct option known[] = {
        {"base", required_argument, NULL, BASE}, {"partition", required_argument, NULL, PARTITION},
        {"deb", required_argument, NULL, DEB},   {"add", required_argument, NULL, ADD},
        {"cert", required_argument, NULL, CERT}, {"version", required_argument, NULL, VERSION},
        {"key", required_argument, NULL, KEY},   {"slot", required_argument, NULL, SLOT},
        {"json", no_argument, NULL, JSON},       {0},
    };
    const struct cn_bundle *bundle = &options->bundle;
    const char *missing;
    int code;

    while ((code = getopt_long(argc, argv, "o:", known, NULL)) != -1)
        if (!take(options, code))
            return CN_EXIT_USAGE;
    if (argc == 1) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    missing = !options->target.base            ? "--base"
              : !options->target.package_count ? "--deb"
              : !bundle->version               ? "--version"
              : !bundle->certificate           ? "--cert"
              : !bundle->key                   ? "--key"
              : !bundle->out                   ? "-o OUT"
                                               : NULL;
    if (argc > optind)
        cn_console_error("--help describes the options", "'%s' is not an option", argv[optind]);
    else if (missing)
        cn_console_error("--help describes the options", "%s is missing", missing);
    else if (!cn_rauc_conf_is_word(bundle->version))
        cn_console_error(NULL, "--version '%s': 1 to 63 letters, digits and + - . _ ~ are expected",
                         bundle->version);
    else
        return CN_EXIT_DONE;
    return CN_EXIT_USAGE;
}

// Refuses to put the signing key itself on the boards.
static int check_files(const struct bundle_options *options, const struct cn_payload *payload)
{
    struct stat key, file;

    if (stat(options->bundle.key, &key)) // not a file, or RAUC will say so
        return CN_EXIT_DONE;
    for (size_t i = 0; i < payload->count; i++) {
        if (stat(payload->files[i].source, &file) == 0 && file.st_dev == key.st_dev &&
            file.st_ino == key.st_ino) {
            cn_console_error("whoever reads it could sign updates",
                             "%s is the signing key; it must not be on a board",
                             payload->files[i].source);
            return CN_EXIT_FAILED;
        }
    }
    return CN_EXIT_DONE;
}

static int make(struct bundle_options *options, const struct cn_workspace *space)
{
    static struct cn_payload payload;
    static struct cn_image_file image;
    char copy[CN_DRAFT_PATH];
    uint64_t size;
    int code = cn_payload_make_common(&options->target, space, &payload);

    if (!code)
        code = check_files(options, &payload);
    if (code)
        return code;
    cn_payload_print(&payload);
    cn_draft_path(&options->bundle.draft, "image", copy);
    code = cn_vendor_image_copy(options->target.base, copy, &size);
    if (!code)
        code = cn_image_file_open(copy, options->target.base, options->target.partition,
                                  payload.architecture, &image);
    if (!code)
        code = cn_l4t_release_check_image(&image, &payload);
    if (!code)
        code = cn_image_file_check_free(&image, &payload, true);
    if (!code)
        code = cn_image_file_inject(&image, space, &payload);
    if (!code)
        code = cn_bundle_check_root(&options->bundle, &image);
    if (!code)
        cn_slot_root_warn(&image, options->target.base);
    return code ? code : cn_bundle_make(&options->bundle, &image);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static struct bundle_options options;
    struct cn_workspace space = {0};
    int code = parse(argc, argv, &options);

    (void)ports;
    if (code)
        return code;
    cn_process_catch_signals();
    code = cn_bundle_open(&options.bundle);
    if (!code && cn_workspace_open(&space))
        code = CN_EXIT_FAILED;
    if (!code)
        code = make(&options, &space);
    cn_workspace_close(&space);
    cn_draft_close(&options.bundle.draft);
    if (code && cn_process_interrupted()) {
        cn_console_error(NULL, "interrupted");
        return CN_EXIT_INTERRUPTED;
    }
    return code;
}

const struct cn_command cn_flash_bundle = {
    .name = "bundle",
    .summary = "make a signed update for boards with two systems",
    .help = help,
    .run = run,
};
