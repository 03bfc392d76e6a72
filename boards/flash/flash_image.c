// cairn-flash image and plan: a vendor's image with Cairn in it, made offline and without root.
#include <stdio.h>
#include <unistd.h>

#include "boards/flash/base.h"
#include "boards/flash/commands.h"
#include "boards/flash/enrol.h"
#include "boards/flash/image_file.h"
#include "boards/flash/manifest.h"
#include "boards/flash/talk.h"

static const char image_help[] =
    "Usage: cairn-flash image --base IMAGE --deb FILE... --site PROFILE --name NAME "
    "--gateway PROFILE -o OUT\n"
    "\n"
    "Makes OUT, the image IMAGE (.img, .img.zst, .img.xz, .img.gz) with the packages, the profile\n"
    "and the key of one board in its root. Needs no root and mounts nothing. The board is\n"
    "enrolled in the same step and its key is wiped here; OUT has mode 0600, OUT.json describes\n"
    "it for 'write' and 'verify'. Exits with 5 when what was written is not read back.\n"
    "\n"
    "  --base IMAGE       the vendor's image\n"
    "  --partition P      its root, by name, label or number, when it cannot be told\n"
    "  -o OUT             the new image\n" CN_ORDER_HELP;

static const char plan_help[] =
    "Usage: cairn-flash plan --deb FILE... --site PROFILE --name NAME --gateway PROFILE "
    "[--base IMAGE]\n"
    "\n"
    "Says what 'image', 'rootfs' and 'ssh' would put on the board, after every check that they\n"
    "make. Writes nothing and enrols nobody. --base IMAGE (not packed) is checked as well.\n"
    "\n"
    "  --base IMAGE       the vendor's image\n"
    "  --partition P      its root, by name, label or number, when it cannot be "
    "told\n" CN_ORDER_HELP;

// Everything up to the first byte that is written for good.
static int prepare(const struct cn_order *order, const struct cn_payload *payload, const char *path,
                   struct cn_image_file *image)
{
    int code = cn_image_file_open(path, order->partition, payload->architecture, image);

    if (code)
        return code;
    cn_talk_step("root", "partition %u%s%s of %s: %s, libc %s, %llu MiB free", image->root.number,
                 image->root.name[0] ? " " : "", image->root.name, path, image->architecture,
                 image->libc, (unsigned long long)image->superblock.free_size >> 20);
    return cn_image_file_check_free(image, payload, order->replace);
}

static int inject(const struct cn_order *order, const struct cn_workspace *space,
                  const struct cn_image_file *image, struct cn_payload *payload)
{
    char key[512];
    int code = cn_enrol_make(order, space, key, sizeof(key));

    if (code)
        return code;
    code = cn_payload_add(payload, key, CN_PAYLOAD_ETC "/node.key", 0600);
    if (!code)
        code = cn_image_file_inject(image, space, payload);
    if (!code)
        code = cn_manifest_file_make(image->path, order->name, payload);
    if (code)
        cn_enrol_revoke(order);
    return code;
}

static int make_image(const struct cn_order *order, const struct cn_workspace *space)
{
    struct cn_payload payload = {0};
    struct cn_image_file image;
    uint64_t size;
    int code = cn_payload_make(order, space, &payload);

    if (code)
        return code;
    cn_payload_print(&payload);
    if (order->dry_run)
        return CN_EXIT_DONE;
    code = cn_base_copy(order->base, order->out, &size);
    if (code)
        return code;
    code = prepare(order, &payload, order->out, &image);
    if (!code)
        code = inject(order, space, &image, &payload);
    if (code) {
        unlink(order->out);
        return code;
    }
    cn_talk_step("done", "%s is ready: %llu MiB for %s", order->out, (unsigned long long)size >> 20,
                 order->name);
    return CN_EXIT_DONE;
}

static int run_image(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_workspace space = {0};
    struct cn_order order = {0};
    int code;

    (void)ports;
    code = cn_order_parse(argc, argv, image_help, &order);
    if (code)
        return code;
    if (!order.base || !order.out || order.positional) {
        cn_talk_error(NULL, "%s",
                      order.positional ? "an image is given with --base"
                      : order.base     ? "-o OUT is missing"
                                       : "--base is missing");
        return CN_EXIT_USAGE;
    }
    code = cn_workspace_open(&space) ? CN_EXIT_FAILED : make_image(&order, &space);
    cn_workspace_close(&space);
    return code;
}

static int run_plan(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_workspace space = {0};
    struct cn_payload payload = {0};
    struct cn_image_file image;
    struct cn_order order = {0};
    int code;

    (void)ports;
    code = cn_order_parse(argc, argv, plan_help, &order);
    if (code)
        return code;
    code = cn_workspace_open(&space) ? CN_EXIT_FAILED : cn_payload_make(&order, &space, &payload);
    if (!code)
        cn_payload_print(&payload);
    if (!code && order.base)
        code = prepare(&order, &payload, order.base, &image);
    if (!code)
        cn_talk_step("key", "0600 %s/node.key: %s", CN_PAYLOAD_ETC,
                     order.key ? order.key : "made when the board is enrolled");
    cn_workspace_close(&space);
    return code;
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
