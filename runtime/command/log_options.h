// log_options.h - --log-level and --log-format, which every command has.
#pragma once

// Sets up the log by both options and removes them from the arguments, wherever they stand. LEVEL
// may be followed by levels of single areas: "warn,run=debug". "--log-level=LEVEL" works as
// "--log-level LEVEL" does. Without --log-format, the format is that of journald if standard error
// leads there, else text. Returns 0, or -1 after printing what is wrong.
int cn_log_options_take(int *argc, char **argv);
