// cairn-aggregator pause and resume: no round is opened until the run is resumed.
#include <getopt.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"

static const char pause_help[] =
    "Usage: cairn-aggregator pause PROFILE [--now] [--socket PATH] [--id ID]\n"
    "\n"
    "Opens no other round until resume. The open round is finished, and its version\n"
    "is made and measured. The pause is in the ledger: it survives restarts, and\n"
    "works without a running aggregator for its next start. Boards wait meanwhile,\n"
    "and status, the page and the metrics show it. No version is another one\n"
    "because of a pause.\n"
    "\n"
    "  --now            does not close the open round either: its updates are still\n"
    "                   taken, and its deadline waits\n" CN_STEER_HELP;

static const char resume_help[] =
    "Usage: cairn-aggregator resume PROFILE [GROUP] [--socket PATH] [--id ID]\n"
    "\n"
    "Takes back pause, and a drain of the aggregator that is not over yet. With\n"
    "GROUP, a group or a board that trains alone: it is invited again.\n" //
    CN_STEER_HELP;

static int run_pause(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"now", no_argument, NULL, 'n'}, CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {0};
    const char *positional[1];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'n')
            steer.request.now = true;
        else if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    if (steer.request.now)
        steer.request.members |= CN_CONTROL_NOW;
    return cn_steer_send(&steer, positional[0], "pause");
}

static int run_resume(const struct cn_ports *ports, int argc, char **argv)
{
    (void)ports;
    return cn_steer_group_command(argc, argv, "resume");
}

const struct cn_command cn_aggregator_pause = {
    .name = "pause",
    .summary = "open no other round until resume",
    .help = pause_help,
    .run = run_pause,
};

const struct cn_command cn_aggregator_resume = {
    .name = "resume",
    .summary = "take back pause or drain",
    .help = resume_help,
    .run = run_resume,
};
