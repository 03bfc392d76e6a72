// log_options.h - --log-level and --log-format, which every command has.
#pragma once

// Removes both options from the arguments, wherever they stand, and sets up the log by them. LEVEL
// may be followed by levels of single areas: "warn,run=debug". "--log-level=LEVEL" works as
// "--log-level LEVEL" does. Without --log-format, journald gets its own format, and anything else
// gets text. Returns 0, or -1 after printing what is wrong.
int cn_log_options_take(int *argc, char **argv);
