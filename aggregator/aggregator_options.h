// aggregator_options.h - the command line of cairn-aggregator's subcommands.
//
// A subcommand is a row of tables: what it is called, its options, its positional arguments. --help and
// --log-level work for all of them.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/port/compute.h"

enum cn_exit { // of the program
    CN_EXIT_DONE = 0,
    CN_EXIT_FAILED = 1,
    CN_EXIT_USAGE = 2,
    CN_EXIT_PROFILE = 3,
};

struct cn_option {
    const char *name;     // "--group"
    const char *short_name; // "-o" or NULL
    const char **value;   // set to the argument that follows, or
    bool *flag;           // set to true
};

struct cn_arguments {
    const char *usage; // the whole help text
    const struct cn_option *options;
    size_t option_count;
    const char **positional; // room for positional_max
    int positional_min, positional_max;
};

enum cn_parse_result {
    CN_PARSE_OK,
    CN_PARSE_HELP,  // was printed: exit 0
    CN_PARSE_WRONG, // was reported: exit 2
};

// argv[0] is the subcommand.
enum cn_parse_result cn_aggregator_options_parse(const struct cn_arguments *arguments, int argc,
                                                 char **argv);

// The implementations this program was linked with.
struct cn_aggregator_ports {
    const struct cn_compute_ops *const *computes; // ends with NULL
};

// A subcommand; returns enum cn_exit, or 128 + its number when a signal ended it.
typedef int cn_aggregator_command(const struct cn_aggregator_ports *ports, int argc, char **argv);

cn_aggregator_command cn_command_init, cn_command_run, cn_command_enroll, cn_command_revoke,
    cn_command_status, cn_command_export, cn_command_replay;
