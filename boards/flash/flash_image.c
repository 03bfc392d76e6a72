// cairn-flash image and plan: put Cairn into a vendor's image, offline and without root.
#include "boards/flash/commands.h"

#include "boards/flash/delivery.h"
#include "boards/flash/image/l4t_release.h"
#include "boards/flash/image/manifest.h"
#include "boards/flash/image/vendor_image.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include <inttypes.h>

#define DRAFT "image" // the image's name until it is whole

static const char image_help[] =
    "Usage: cairn-flash image --base IMAGE --deb FILE... --site PROFILE --name NAME\n"
    "                         --gateway PROFILE -o OUT\n"
    "\n"
    "Makes OUT, the image IMAGE (.img, .img.zst, .img.xz, .img.gz) with the\n"
    "packages, the profile and the key of one board in its root. Needs no root and\n"
    "mounts nothing. The board is enrolled in the same step and its key is wiped\n"
    "here; OUT has mode 0600, OUT.json describes it for 'write' and 'verify'. Exits\n"
    "with 5 when what was written is not read back.\n"
    "\n"
    "  --base IMAGE       the vendor's image\n"
    "  --partition P      its root, by name, label or number, when it cannot be told\n"
    "  -o OUT             the new image\n" CN_TARGET_HELP;

static const char plan_help[] =
    "Usage: cairn-flash plan --deb FILE... --site PROFILE --name NAME\n"
    "                        --gateway PROFILE [--base IMAGE]\n"
    "\n"
    "Says what 'image', 'rootfs' and 'ssh' would put on the board, after every check\n"
    "that they make. Writes nothing and enrols nobody. --base IMAGE (not packed) is\n"
    "checked as well.\n"
    "\n"
    "  --base IMAGE       the vendor's image\n"
    "  --partition P      its root, by name, label or number, when it cannot be "
    "told\n" CN_TARGET_HELP;

// Checks the image in a file. The base image is the one that is named: the file may be its copy.
static int examine(struct cn_delivery *delivery, const char *path)
{
    const struct cn_target_options *order = &delivery->order;
    struct cn_image_file *image = &delivery->image;
    int code = cn_image_file_open(path, order->base, order->partition,
                                  delivery->payload.architecture, image);

    if (code)
        return code;
    cn_console_step("root", "partition %u%s%s of %s: %s, libc %s, %" PRIu64 " MiB free",
                    image->root.number, image->root.name[0] ? " " : "", image->root.name,
                    order->base, image->architecture, image->libc,
                    image->superblock.free_size >> 20);
    code = cn_l4t_release_check_image(image, &delivery->payload);
    return code ? code : cn_image_file_check_free(image, &delivery->payload, order->replace);
}

// Checks the image. A compressed image is first unpacked to its output path.
static int check_image(struct cn_delivery *delivery)
{
    const struct cn_target_options *order = &delivery->order;
    uint64_t size;
    int code;

    if (order->dry_run)
        return cn_vendor_image_is_packed(order->base) ? CN_EXIT_DONE
                                                      : examine(delivery, order->base);
    code = cn_draft_open(order->out, &delivery->draft);
    if (!code)
        code = cn_delivery_take_over(delivery);
    if (code)
        return code;
    code = cn_manifest_file_check_free(order->out);
    cn_draft_path(&delivery->draft, DRAFT, delivery->copy);
    if (!code)
        code = cn_vendor_image_copy(order->base, delivery->copy, &size);
    return code ? code : examine(delivery, delivery->copy);
}

static int inject(struct cn_delivery *delivery)
{
    const struct cn_target_options *order = &delivery->order;
    int code = cn_image_file_inject(&delivery->image, &delivery->space, &delivery->payload);

    if (!code)
        code = cn_manifest_file_make(delivery->copy, order->name, &delivery->payload);
    if (!code && cn_process_interrupted())
        code = CN_EXIT_INTERRUPTED;
    if (!code)
        code = cn_draft_publish(&delivery->draft, DRAFT, ".json");
    if (!code)
        cn_console_step("done", "%s is ready: %" PRIu64 " MiB for %s", order->out,
                        delivery->image.size >> 20, order->name);
    return code;
}

static int check_plan(struct cn_delivery *delivery)
{
    const struct cn_target_options *order = &delivery->order;
    int code = order->base ? examine(delivery, order->base) : CN_EXIT_DONE;

    if (!code)
        cn_console_step("key", "0600 %s/node.key: %s", CN_PAYLOAD_ETC,
                        order->key ? order->key : "made when the board is enrolled");
    return code;
}

static int run_image(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct cn_delivery_target target = {
        .help = image_help, .check = check_image, .write = inject};

    (void)ports;
    return cn_delivery_run(&target, argc, argv);
}

static int run_plan(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct cn_delivery_target target = {.help = plan_help, .check = check_plan};

    (void)ports;
    return cn_delivery_run(&target, argc, argv);
}

const struct cn_command cn_flash_image = {
    .name = "image",
    .summary = "put Cairn into a vendor's image",
    .help = image_help,
    .run = run_image,
};

const struct cn_command cn_flash_plan = {
    .name = "plan",
    .summary = "say what would be put on a board",
    .help = plan_help,
    .run = run_plan,
};
