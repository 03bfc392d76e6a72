// log_options.h - the options of every command that say what the log writes and how.
#pragma once

// Takes "--log-level LEVEL", with levels of areas behind it ("warn,run=debug"), and "--log-format
// FORMAT", or "--log-level=LEVEL" and so on, out of the arguments, wherever they stand, and sets
// the log so. Without a format journald gets its own, and others get text. Returns 0, or -1 after
// saying what is wrong.
int cn_log_options_take(int *argc, char **argv);
