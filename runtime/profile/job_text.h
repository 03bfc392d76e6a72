// job_text.h - the values of a job as text that is stored, read back and compared key by key.
//
// The text is a line "KEY: VALUE" for each key of a job, in the order of the schema, for example
// "train.batch: 32". The model and keys without a value are left out. The text is YAML, and values
// are written as in a profile. Threading: none.
#pragma once

#include "runtime/profile/job_changes.h"
#include "runtime/profile/profile.h"

#define CN_JOB_TEXT_MAX ((size_t)64 * 1024) // bytes of a text that is read

// Writes the values of settings->job to *text, which the caller frees. Returns CN_ENOMEM.
cn_err cn_job_text_make(const struct cn_settings *settings, char **text);

// Reads a text into settings->job and sets has_job; other settings stay as they are. A key that the
// text lacks gets its default. Returns CN_ENOMEM, or CN_EFORMAT for any other text; diag then has a
// line for each mistake in a value or key, and the job may be partly read.
cn_err cn_job_text_read(const char *text, size_t size, struct cn_diag *diag,
                        struct cn_settings *settings);

// The words of a line that compares two values. The line is "KEY: VALUE", words[0], "VALUE",
// words[1].
extern const char *const cn_job_text_conflict[2]; // "32 in the run, 64 in the profile"
extern const char *const cn_job_text_change[2];   // "32, now 64"

// Compares the job of a run with another job. Adds a line to diag for each value that differs and
// whose enum cn_change is among classes, a sum of CN_CHANGE_BIT. Leaves out values without effect
// in both jobs (cn_schema_idle). Returns the number of lines.
size_t cn_job_text_compare(const struct cn_settings *run, const struct cn_settings *other,
                           unsigned classes, const char *const words[2], struct cn_diag *diag);
