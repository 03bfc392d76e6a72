// cairn-flash rootfs: a folder that becomes the root of a board, such as L4T's.
#include <stdio.h>

#include "boards/flash/commands.h"
#include "boards/flash/enrol.h"
#include "boards/flash/talk.h"
#include "boards/flash/tree.h"

static const char help[] =
    "Usage: cairn-flash rootfs DIR --deb FILE... --site PROFILE --name NAME --gateway PROFILE\n"
    "\n"
    "Puts the packages, the profile and the key of one board into DIR, for example\n"
    "Linux_for_Tegra/rootfs before l4t_initrd_flash.sh, or the mounted root of a card. Files are\n"
    "root's when this is run by root.\n"
    "\n" CN_ORDER_HELP;

static int fill(const struct cn_order *order, const struct cn_workspace *space)
{
    struct cn_payload payload = {0};
    char key[512];
    int code = cn_payload_make(order, space, &payload);

    if (!code)
        cn_payload_print(&payload);
    if (!code)
        code = cn_tree_check(order->positional, payload.architecture, order->replace);
    if (code || order->dry_run)
        return code;
    code = cn_enrol_make(order, space, key, sizeof(key));
    if (code)
        return code;
    code = cn_payload_add(&payload, key, CN_PAYLOAD_ETC "/node.key", 0600);
    if (!code)
        code = cn_tree_write(order->positional, &payload);
    if (code)
        cn_enrol_revoke(order);
    else
        cn_talk_step("done", "%s is ready for %s", order->positional, order->name);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct cn_workspace space = {0};
    struct cn_order order = {0};
    int code = cn_order_parse(argc, argv, help, &order);

    (void)ports;
    if (code)
        return code;
    if (!order.positional) {
        cn_talk_error(NULL, "DIR is missing");
        return CN_EXIT_USAGE;
    }
    code = cn_workspace_open(&space) ? CN_EXIT_FAILED : fill(&order, &space);
    cn_workspace_close(&space);
    return code;
}

const struct cn_command cn_flash_rootfs = {
    .name = "rootfs",
    .summary = "put Cairn into a folder that becomes a board's root",
    .help = help,
    .run = run,
};
