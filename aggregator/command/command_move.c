// cairn-aggregator move: a board trains in another group from now on.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"

static const char help[] =
    "Usage: cairn-aggregator move PROFILE BOARD --group G [--socket PATH] [--id ID]\n"
    "\n"
    "Enrols a board, with the key that it has, in another group. Its sessions end\n"
    "within a second, and it comes back as a member of G. Both groups get new keys\n"
    "for their members. It is refused while the open round waits for the group of\n"
    "the board: pause first. In an asynchronous run, while that group trains: drain\n"
    "it first.\n"
    "Boards of several members also need their profiles changed: group.members.\n"
    "\n"
    "  --group G        the group that it trains in from now on\n" CN_STEER_HELP;

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"group", required_argument, NULL, 'g'}, CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {.request = {.members = CN_CONTROL_BOARD | CN_CONTROL_GROUP}};
    const char *positional[2], *group = NULL;
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "g:", known, NULL)) != -1) {
        if (option == 'g')
            group = optarg;
        else if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 2, positional))
        return CN_EXIT_USAGE;
    if (!group) {
        fprintf(stderr, "error: --group G is missing; see --help\n");
        return CN_EXIT_USAGE;
    }
    if (!cn_steer_set_name(positional[1], steer.request.board) ||
        !cn_steer_set_name(group, steer.request.group))
        return CN_EXIT_USAGE;
    return cn_steer_send(&steer, positional[0], "move");
}

const struct cn_command cn_aggregator_move = {
    .name = "move",
    .summary = "put a board into another group",
    .help = help,
    .run = run,
};
