// arguments.c - the arguments of a command line that are no options.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"

bool cn_aggregator_positional(int argc, char **argv, int count, const char **positional)
{
    return cn_aggregator_arguments(argc, argv, count, count == 1 ? "PROFILE" : "PROFILE and BOARD",
                                   positional);
}

bool cn_aggregator_arguments(int argc, char **argv, int count, const char *names,
                             const char **positional)
{
    if (argc - optind != count) {
        fprintf(stderr, "error: %s wants %s; see --help\n", argv[0], names);
        return false;
    }
    for (int i = 0; i < count; i++)
        positional[i] = argv[optind + i];
    return true;
}
