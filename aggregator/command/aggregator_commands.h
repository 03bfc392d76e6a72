// aggregator_commands.h - the subcommands of cairn-aggregator; each is a file. See command.h.
#pragma once

#include "runtime/command/command.h"

extern const struct cn_command cn_aggregator_init;
extern const struct cn_command cn_aggregator_check;
extern const struct cn_command cn_aggregator_run;
extern const struct cn_command cn_aggregator_enroll;
extern const struct cn_command cn_aggregator_revoke;
extern const struct cn_command cn_aggregator_revocations;
extern const struct cn_command cn_aggregator_status;
extern const struct cn_command cn_aggregator_events;
extern const struct cn_command cn_aggregator_report;
extern const struct cn_command cn_aggregator_export;
extern const struct cn_command cn_aggregator_replay;
extern const struct cn_command cn_aggregator_reload;
extern const struct cn_command cn_aggregator_rollback;
extern const struct cn_command cn_aggregator_remove;
extern const struct cn_command cn_aggregator_pause;
extern const struct cn_command cn_aggregator_resume;
extern const struct cn_command cn_aggregator_drain;
extern const struct cn_command cn_aggregator_close_round;
extern const struct cn_command cn_aggregator_extend_round;
extern const struct cn_command cn_aggregator_stop;
extern const struct cn_command cn_aggregator_logs;
extern const struct cn_command cn_aggregator_selftest;
extern const struct cn_command cn_aggregator_job;
extern const struct cn_command cn_aggregator_move;
extern const struct cn_command cn_aggregator_snapshot;
extern const struct cn_command cn_aggregator_audit;
extern const struct cn_command cn_aggregator_try;
extern const struct cn_command cn_aggregator_sweep;

// Takes exactly count positional arguments after getopt_long has finished. Otherwise prints what is
// wrong, with the arguments' names, such as "PROFILE and VERSION", and returns false.
bool cn_aggregator_arguments(int argc, char **argv, int count, const char *names,
                             const char **positional);
// As cn_aggregator_arguments, for the argument PROFILE or, with count 2, for PROFILE and BOARD.
bool cn_aggregator_positional(int argc, char **argv, int count, const char **positional);
