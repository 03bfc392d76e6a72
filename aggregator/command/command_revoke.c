// cairn-aggregator revoke: a board's key is refused from now on.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"
#include "aggregator/daemon/setup.h"

static const char help[] =
    "Usage: cairn-aggregator revoke PROFILE BOARD [--socket PATH] [--id ID]\n"
    "\n"
    "Refuses the board from now on. A running aggregator ends its sessions within a\n"
    "second. Updates that were accepted stay counted. The other members of its group\n"
    "get new keys for each other at the end of their round and drop the board. A\n"
    "board that was revoked by a release without key epochs is dropped by its group\n"
    "when it is revoked once more.\n" CN_STEER_HELP;

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {.request = {.members = CN_CONTROL_BOARD}};
    const char *positional[2];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    if (!cn_aggregator_positional(argc, argv, 2, positional))
        return CN_EXIT_USAGE;
    if (!cn_steer_set_name(positional[1], steer.request.board))
        return CN_EXIT_USAGE;
    if (cn_steer_is_needed(&steer, positional[0], CN_STEER_WRITE))
        return cn_steer_send(&steer, positional[0], "revoke");
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_ENROLL);
    if (!result)
        result = cn_steer_write(&steer, &setup, "revoke");
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_revoke = {
    .name = "revoke",
    .summary = "refuse a board from now on",
    .help = help,
    .run = run,
};
