// job_text.h - the values of a job as text that is stored, read back and compared key by key.
//
// The text is a line "KEY: VALUE" for each key of a job but its model, in the order of the schema:
// "train.batch: 32". It is YAML, and a value is written as in a profile. Threading: none.
#pragma once

#include "runtime/profile/job_changes.h"
#include "runtime/profile/profile.h"

#define CN_JOB_TEXT_MAX ((size_t)64 * 1024)

// Writes the values of settings->job. Returns CN_ENOMEM or CN_OK; the caller frees *text.
cn_err cn_job_text_make(const struct cn_settings *settings, char **text);

// Reads a text into settings->job and sets has_job; other settings stay. A key that the text lacks
// gets its default. Returns CN_EFORMAT, with a line in diag for each mistake, for any other text.
cn_err cn_job_text_read(const char *text, size_t size, struct cn_diag *diag,
                        struct cn_settings *settings);

// The words of a line that compares two values: "KEY: VALUE", words[0], "VALUE", words[1].
extern const char *const cn_job_text_conflict[2]; // "32 in the ledger, 64 in the profile"
extern const char *const cn_job_text_change[2];   // "32, now 64"

// Compares the job of a run with another one. Adds a line to diag for each value that differs and
// whose class is among classes, a sum of CN_CHANGE_BIT. Values without effect in both jobs are left
// out (cn_schema_idle). Returns the number of lines.
size_t cn_job_text_compare(const struct cn_settings *run, const struct cn_settings *other,
                           unsigned classes, const char *const words[2], struct cn_diag *diag);
