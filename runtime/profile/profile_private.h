// profile_private.h - what the files of this directory share about a loaded profile.
#pragma once

#include "runtime/profile/schema.h"
#include "runtime/profile/yaml_tree.h"

#define CN_SOURCES_MAX 8 // files that extend each other

// A file of the profile.
struct cn_profile_file {
    char path[CN_PATH_SIZE];      // as in messages
    char directory[CN_PATH_SIZE]; // what its paths count from
    char *identity;               // the same for all paths of a file
    enum cn_layer layer;
    struct cn_yaml_node *root;
};

// Where a value was written; no source: it is the default.
struct cn_origin {
    const struct cn_profile_file *source;
    struct cn_mark mark;
    bool in_job; // in a job file or in a site's section job
};

struct cn_profile {
    struct cn_settings settings;
    struct cn_origin *origins;                           // of the rows of the schema
    struct cn_profile_file *sources[2 * CN_SOURCES_MAX]; // site and job files; lower ones first
    size_t source_count;
    size_t site_count; // of them those before the site's job; the last of these was asked for
};

// The origin of the row with this path, which exists.
const struct cn_origin *cn_profile_origin(const struct cn_profile *profile, const char *path);

// What no row can say of itself: values that contradict each other.
void cn_profile_check(const struct cn_profile *profile, struct cn_diagnostics *report);

// profile_file.c: the text of a regular file of at most CN_YAML_SIZE_MAX bytes, to be freed; and
// the file that "extends: NAME" means. Both report at mark and return NULL, or false, when there is
// none.
char *cn_profile_read_file(const char *path, struct cn_mark mark, struct cn_diagnostics *report,
                           size_t *size);
bool cn_profile_find_board(const char *name, const struct cn_profile_file *from,
                           struct cn_mark mark, struct cn_diagnostics *report,
                           char path[CN_PATH_SIZE]);

// profile_suggest.c: what an unknown key was probably meant to be; "" when nothing is near. prefix
// is the path of its section in the schema with the dot, "" at the top.
void cn_profile_suggest(const char *prefix, const char *key, enum cn_layer layer,
                        char suggestion[CN_PATH_SIZE]);
