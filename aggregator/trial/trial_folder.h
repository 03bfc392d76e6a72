// trial_folder.h - the folder of a trial: everything that a run makes lies in it.
//
// A folder is filled under another name and then renamed, so one with this name is complete. Its
// file CN_TRIAL_FILE has the settings of the trial, a line each, and is locked while the trial
// runs. Threading: one thread.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"

#define CN_TRIAL_FILE "trial.txt"
#define CN_TRIAL_TEXT_SIZE 8192

struct cn_trial_folder {
    char path[PATH_MAX]; // where the trial lies, or is being made
    // Where a new folder will lie. "": it stays at path and is removed in the end.
    char final[PATH_MAX];
    int lock; // descriptor that holds the lock; -1: none
};

// Checks that path is free, or a folder of this user that is empty or has the file. Sets *exists to
// whether the folder has the file. Otherwise returns CN_EEXIST with a line in diag. what names the
// command for the line.
cn_err cn_trial_folder_check(const char *path, const char *file, const char *what, bool *exists,
                             struct cn_diag *diag);

// Opens and locks the trial at path. Sets *exists to false when nothing or an empty folder is
// there. Returns CN_EEXIST with a line in diag when something else is there or another process runs
// the trial.
cn_err cn_trial_folder_open(struct cn_trial_folder *folder, const char *path, bool *exists,
                            struct cn_diag *diag);

// Makes an empty folder beside final. With final NULL, makes it in the folder for temporary files.
cn_err cn_trial_folder_make(struct cn_trial_folder *folder, const char *final,
                            struct cn_diag *diag);

// Completes a new folder: writes the trial's settings, takes the lock and renames the folder.
cn_err cn_trial_folder_finish(struct cn_trial_folder *folder, const char *settings,
                              struct cn_diag *diag);

// Compares the settings of a folder with those that are wanted. Returns CN_EINVAL with a line in
// diag that names the first difference.
cn_err cn_trial_folder_compare(const struct cn_trial_folder *folder, const char *settings,
                               struct cn_diag *diag);

// Makes a file that does not exist yet in a folder. Returns NULL with a line in diag. Close it with
// cn_trial_file_close, which adds a line to diag if not all was written.
FILE *cn_trial_file_create(const char *folder, const char *name, struct cn_diag *diag);
cn_err cn_trial_file_close(FILE *file, const char *name, struct cn_diag *diag);

// Closes the folder. With remove, removes the folder and all that is in it.
void cn_trial_folder_close(struct cn_trial_folder *folder, bool remove);
