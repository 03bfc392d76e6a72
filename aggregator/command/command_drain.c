// cairn-aggregator drain: a group is not invited any more, or the aggregator ends after its round.
#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"

static const char help[] =
    "Usage: cairn-aggregator drain PROFILE [GROUP] [--socket PATH] [--id ID]\n"
    "\n"
    "With GROUP, a group or a board that trains alone: it is not invited to later\n"
    "rounds. The open one is not touched. This is in the ledger until resume\n"
    "takes it back. A board that trains with others cannot be drained alone.\n"
    "\n"
    "Without GROUP the aggregator finishes the open round and ends with exit code 0.\n"
    "A restart before that changes nothing about it; the next start after it goes on\n"
    "with the run.\n" CN_STEER_HELP;

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    (void)ports;
    return cn_steer_group_command(argc, argv, "drain");
}

const struct cn_command cn_aggregator_drain = {
    .name = "drain",
    .summary = "invite a group no more, or end after the round",
    .help = help,
    .run = run,
};
