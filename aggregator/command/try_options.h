// try_options.h - the command line of "cairn-aggregator try".
#pragma once

#include "aggregator/trial/trial.h"

struct cn_try_options {
    struct cn_trial_options trial;
    char job[PATH_MAX]; // absolute path of the job file; trial.job is NULL or points here
    bool json;          // the result is printed as JSON
};

// Reads the arguments after the command's name. Prints what is wrong and returns false.
bool cn_try_options_read(int argc, char **argv, struct cn_try_options *options);

// Writes the settings that a trial is made of, a line each.
void cn_try_options_describe(const struct cn_trial_options *options, char *text, size_t size);

// Reads the numbers of boards and groups from a text of cn_try_options_describe. Sets boards to 0
// if the text is damaged.
void cn_try_options_recall(const char *text, struct cn_trial_split *split);
