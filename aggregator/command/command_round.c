// cairn-aggregator close-round and extend-round: what people do to the open round.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"
#include "runtime/profile/notation/quantity.h"

static const char close_help[] =
    "Usage: cairn-aggregator close-round PROFILE --yes [--job JOB] [--socket PATH]\n"
    "                                   [--id ID]\n"
    "\n"
    "Closes the open round with the updates that it has, at least one, although its\n"
    "quorum is not reached. Groups that still train are late: they keep their change\n"
    "for the next round. The ledger notes it with the round, and replay makes the\n"
    "same version.\n"
    "\n"
    "  --yes            without it, says what would happen and does nothing\n" CN_STEER_JOB_HELP
        CN_STEER_HELP;

static const char extend_help[] =
    "Usage: cairn-aggregator extend-round PROFILE TIME [--job JOB] [--socket PATH]\n"
    "                                    [--id ID]\n"
    "\n"
    "Gives the open round more time, such as 10min: its deadline is later by TIME.\n"
    "The ledger notes it with the round, so a restart keeps it.\n\n" CN_STEER_JOB_HELP
        CN_STEER_HELP;

static int run_close(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"yes", no_argument, NULL, 'y'}, CN_STEER_JOB_OPTION, CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {.of_run = true};
    const char *positional[1];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'y')
            steer.request.yes = true;
        else if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    if (steer.request.yes)
        steer.request.members |= CN_CONTROL_YES;
    return cn_steer_send(&steer, positional[0], "close-round");
}

static int run_extend(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {CN_STEER_JOB_OPTION, CN_STEER_OPTIONS, {0}};
    struct cn_steer steer = {.of_run = true, .request = {.members = CN_CONTROL_DURATION}};
    const char *positional[2];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    if (!cn_aggregator_arguments(argc, argv, 2, "PROFILE and TIME", positional))
        return CN_EXIT_USAGE;
    if (cn_quantity_parse(positional[1], cn_units_time, &steer.request.duration_ms)) {
        fprintf(stderr, "error: %s: expected a time with its unit, such as 10min or \"90 s\"\n",
                positional[1]);
        return CN_EXIT_USAGE;
    }
    return cn_steer_send(&steer, positional[0], "extend-round");
}

const struct cn_command cn_aggregator_close_round = {
    .name = "close-round",
    .summary = "close the open round below its quorum",
    .help = close_help,
    .run = run_close,
};

const struct cn_command cn_aggregator_extend_round = {
    .name = "extend-round",
    .summary = "give the open round more time",
    .help = extend_help,
    .run = run_extend,
};
