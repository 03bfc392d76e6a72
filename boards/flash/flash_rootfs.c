// cairn-flash rootfs: puts Cairn into a folder that becomes a board's root, such as L4T's.
#include "boards/flash/commands.h"
#include "boards/flash/delivery.h"
#include "boards/flash/image/tree.h"
#include "boards/flash/tool/console.h"

static const char help[] =
    "Usage: cairn-flash rootfs DIR --deb FILE... --site PROFILE --name NAME\n"
    "                          --gateway PROFILE\n"
    "\n"
    "Puts the packages, the profile and the key of one board into DIR, for example\n"
    "Linux_for_Tegra/rootfs before l4t_initrd_flash.sh, or the mounted root of a\n"
    "card. Files are root's when this is run by root.\n"
    "\n" CN_TARGET_HELP;

static int check(struct cn_delivery *delivery)
{
    return cn_tree_check(delivery->order.positional, &delivery->payload, delivery->order.replace);
}

static int write_tree(struct cn_delivery *delivery)
{
    int code = cn_tree_write(delivery->order.positional, &delivery->payload);

    if (!code)
        cn_console_step("done", "%s is ready for %s", delivery->order.positional,
                        delivery->order.name);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct cn_delivery_target target = {
        .help = help, .operand = "DIR", .check = check, .write = write_tree};

    (void)ports;
    return cn_delivery_run(&target, argc, argv);
}

const struct cn_command cn_flash_rootfs = {
    .name = "rootfs",
    .summary = "put Cairn into a folder that becomes a board's root",
    .help = help,
    .run = run,
};
