// profile_private.h - declarations about a loaded profile that the files of this directory share.
#pragma once

#include "runtime/profile/notation/yaml_tree.h"
#include "runtime/profile/schema.h"

#define CN_SOURCES_MAX 8 // most files that extend each other

// A file of the profile.
struct cn_profile_file {
    char path[CN_PATH_SIZE];      // path for messages
    char directory[CN_PATH_SIZE]; // directory for relative paths in the file
    char *identity;               // its resolved path, the same for all paths that lead to the file
    enum cn_layer layer;
    struct cn_yaml_node *root;
};

// The place where a value was written.
struct cn_origin {
    const struct cn_profile_file *source; // NULL: the value is the default
    struct cn_mark mark;
    bool in_job; // in a job file or in a site's section job
};

struct cn_profile {
    struct cn_settings settings;
    struct cn_origin *origins;                           // one for each row of the schema
    struct cn_profile_file *sources[2 * CN_SOURCES_MAX]; // site and job files; lower layers first
    size_t source_count;
    size_t site_count; // sources before the site's job; the last of them is the file to load
};

// Returns the origin of the row with this path, which exists.
const struct cn_origin *cn_profile_origin(const struct cn_profile *profile, const char *path);

// profile_check.c: Reports values that contradict each other, which no single row can show.
void cn_profile_check(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_no_job.c: Returns whether the profile has no value of a job, and reports that.
bool cn_profile_names_no_job(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check.c: Returns where the value of a key was written, and sets report to that file. For
// a default, returns line 1 and leaves the file of report.
struct cn_mark cn_profile_place(const struct cn_profile *profile, const char *path,
                                struct cn_diagnostics *report);

// profile_check_gate.c: Reports a gate without a central set, or a gate on the accuracy of a loss
// that has none.
void cn_profile_check_gate(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_pipeline.c: Reports keys that parallel.pipeline needs or excludes.
void cn_profile_check_pipeline(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_events.c: Reports a kind of event that does not exist.
void cn_profile_check_events(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_robust.c: Reports keys that contradict the job's robust rule or need one.
void cn_profile_check_robust(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_async.c: Reports keys that contradict asynchronous rounds or need them.
void cn_profile_check_async(const struct cn_profile *profile, struct cn_diagnostics *report);

// http_settings.c: Reports an address that other machines reach without a token, and bad names.
void cn_profile_check_http(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_companions.c: Says whether a key of the job means something with the job's other values.
bool cn_profile_has_meaning(const char *path, const struct cn_job *job);
// Warns of keys that are set and mean nothing.
void cn_profile_check_companions(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_normalize.c: Reports keys that contradict server.normalize, which compares the
// steps of groups.
void cn_profile_check_normalize(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_inputs.c: Warns of a normalization that differs from board to board.
void cn_profile_check_inputs(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_stop.c: Reports stop rules without anything to measure on, and a metric that the
// job's loss lacks.
void cn_profile_check_stop(const struct cn_profile *profile, struct cn_diagnostics *report);
// Refuses a run that a board's unproven measurement could end.
void cn_profile_check_trust(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_rate.c: Warns of a learning rate that is far too large for Adam.
void cn_profile_check_rate(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_correction.c: Reports keys that contradict train.correction (control variates).
void cn_profile_check_correction(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_check_local.c: Reports keys that contradict update.local or update.frozen, whose tensors
// are never sent.
void cn_profile_check_local(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_file.c: Reads a regular file of at most CN_YAML_SIZE_MAX bytes; the caller frees the
// text. When the file cannot be read, reports that at mark and returns NULL.
char *cn_profile_read_file(const char *path, struct cn_mark mark, struct cn_diagnostics *report,
                           size_t *size);

// profile_file.c: Finds the path of the type of board that "extends: NAME" names in the file from.
// When there is none, reports that at mark and returns false.
bool cn_profile_find_board(const char *name, const struct cn_profile_file *from,
                           struct cn_mark mark, struct cn_diagnostics *report,
                           char path[CN_PATH_SIZE]);

// profile_suggest.c: Writes how a known key that was written with dots is nested,
// "train: {correction: ...}". prefix is as in cn_profile_suggest. Writes "" for another key.
void cn_profile_nest(const char *prefix, const char *key, enum cn_layer layer,
                     char nested[CN_PATH_SIZE]);

// profile_suggest.c: Writes the known key that an unknown key probably means; "" when none is near.
// prefix is the path of the key's section in the schema, with its last dot; "" at the top.
void cn_profile_suggest(const char *prefix, const char *key, enum cn_layer layer,
                        char suggestion[CN_PATH_SIZE]);
