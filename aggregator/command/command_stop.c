// cairn-aggregator stop: the running aggregator ends now.
#include <getopt.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"

static const char help[] =
    "Usage: cairn-aggregator stop PROFILE [--socket PATH] [--id ID]\n"
    "\n"
    "Ends the aggregator as SIGTERM does: everything that was accepted is saved, and\n"
    "the next start goes on with the open round. drain ends it after the round.\n" //
    CN_STEER_HELP;

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {0};
    const char *positional[1];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    return cn_steer_send(&steer, positional[0], "stop");
}

const struct cn_command cn_aggregator_stop = {
    .name = "stop",
    .summary = "end the running aggregator",
    .help = help,
    .run = run,
};
