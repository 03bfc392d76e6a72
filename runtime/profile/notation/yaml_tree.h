// yaml_tree.h - YAML text as a tree in which every key and value has its place in the file.
//
// The subset of YAML that profiles use is accepted: one document of maps, lists and scalars. Errors
// are: tabs that indent, anchors, aliases, tags, directives, duplicate keys, control characters in
// keys and values, and more than the depth and entries below. A caller checks the size.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"

#define CN_YAML_SIZE_MAX ((size_t)1024 * 1024) // bytes of a file
#define CN_YAML_DEPTH_MAX 8                    // maps and lists inside each other
#define CN_YAML_ENTRIES_MAX 256                // entries of a map or list

// Collects errors: each becomes a line "file:line:column: error: ..." and is counted.
struct cn_diagnostics {
    struct cn_diag *diag; // collects the lines; may be NULL
    const char *file;
    size_t errors;
};

struct cn_mark {
    size_t line, column; // both count from 1
};

void cn_diagnostics_error(struct cn_diagnostics *report, struct cn_mark mark, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));

// As cn_diagnostics_error, for input that is no mistake but deserves a look. Not counted as an
// error.
void cn_diagnostics_warning(struct cn_diagnostics *report, struct cn_mark mark, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));

#define CN_QUOTE_SIZE 64

// Writes text in single quotes for a message, cut to fit, with control characters replaced by '?'.
// Returns quoted.
const char *cn_quote(char quoted[CN_QUOTE_SIZE], const char *text);

enum cn_yaml_type {
    CN_YAML_SCALAR,
    CN_YAML_LIST,
    CN_YAML_MAP,
};

struct cn_yaml_node {
    enum cn_yaml_type type;
    char *key; // key of an entry of a map, else NULL
    struct cn_mark key_mark;
    char *text;                               // text of a scalar, else NULL
    bool plain;                               // the scalar has no quotes
    bool bad;                                 // a mistake in this node has been reported
    struct cn_mark mark;                      // where the value begins
    struct cn_yaml_node *first, *last, *next; // first and last child; next sibling
    size_t count;                             // number of children
};

// Parses a document. *root is NULL for an empty document; free it with cn_yaml_free. Mistakes go to
// report, and *root has the part that could be read, so that the caller can find more mistakes.
// Only CN_ENOMEM is returned as an error.
cn_err cn_yaml_parse(const char *text, size_t size, struct cn_diagnostics *report,
                     struct cn_yaml_node **root);
void cn_yaml_free(struct cn_yaml_node *root);

// Returns the entry of a map with this key, or NULL; node may be NULL.
const struct cn_yaml_node *cn_yaml_get(const struct cn_yaml_node *node, const char *key);
