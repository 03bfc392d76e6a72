// train_history.h - a record of the rounds of "cairn-node train", and reports of it as CSV, JSON or
// a page.
//
// STATE/history.csv gets a line for each round, before the round is stored. So after a crash of the
// program a round may be trained again and have two lines. The reader then drops the earlier line
// and all lines between the two. A report has at most the first million rounds. The file only
// informs: a failure to write is logged once, and the file is not synced, so that a power cut may
// lose lines of stored rounds.
//
// Threading: none.
#pragma once

#include "runtime/round/node/alone.h"

#define CN_TRAIN_HISTORY_FILE "history.csv"

// The caller sets settings; the rest is zero at first.
struct cn_train_history {
    const struct cn_settings *settings; // borrowed
    bool told;                          // a failure to write was logged
};

// Returns whether there is a file, so a round was trained.
bool cn_train_history_exists(const struct cn_train_history *history);

// Removes the file. Call it when training begins without a stored round.
void cn_train_history_begin(const struct cn_train_history *history);

// Adds a round.
void cn_train_history_add(struct cn_train_history *history, const struct cn_alone_report *report);

// Returns whether path, the name of a report, ends in .html, .csv or .json and can be written. If
// not, prints an error.
bool cn_train_history_check(const char *path);

// Writes the rounds as a report to path, in the form that the end of its name says. On an error
// prints the reason.
cn_err cn_train_history_write(const struct cn_train_history *history, const char *path);
