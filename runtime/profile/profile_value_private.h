// profile_value_private.h - what the readers of values share. Threading: none.
#pragma once

#include "runtime/profile/profile_value.h"

// The value that is read.
struct cn_value_reading {
    struct cn_diagnostics *report;
    const char *directory; // for relative paths
    const char *key;
    const struct cn_schema_row *row;
};

// All return false after they reported a mistake.

// Reports "KEY: FOUND problem; expected WANTED".
bool cn_value_reject(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                     const char *problem);

// Read a name (CN_NAME_SIZE) and a path (CN_PATH_SIZE).
bool cn_value_read_name(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        char *to);
bool cn_value_read_path(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        char *to);

// Checks that the name of an entry is valid.
bool cn_value_check_entry_name(const struct cn_value_reading *reading,
                               const struct cn_yaml_node *entry);
// Checks that node is a map of 1 to limit entries.
bool cn_value_check_map(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        size_t limit);

// profile_value_data.c: Reads the map of data sets.
bool cn_value_read_data(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        struct cn_settings *settings);
