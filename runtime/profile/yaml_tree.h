// yaml_tree.h - YAML text as a tree that knows where everything stands.
//
// The subset that profiles use: one document of maps, lists and scalars. Tabs, anchors, aliases,
// tags, directives, duplicate keys, control characters and too much of anything are errors.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"

#define CN_YAML_SIZE_MAX ((size_t)1024 * 1024)
#define CN_YAML_DEPTH_MAX 8
#define CN_YAML_ENTRIES_MAX 256

// Where errors go: each becomes a line "file:line:column: error: ..." and is counted.
struct cn_diagnostics {
    struct cn_diag *diag; // or NULL
    const char *file;
    size_t errors;
};

struct cn_mark {
    size_t line, column; // from 1
};

void cn_diagnostics_error(struct cn_diagnostics *report, struct cn_mark mark, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));

// The same of what is no mistake, but has no effect.
void cn_diagnostics_warning(struct cn_diagnostics *report, struct cn_mark mark, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));

#define CN_QUOTE_SIZE 64

// text in quotes for a message: cut when long, control characters replaced.
const char *cn_quote(char quoted[CN_QUOTE_SIZE], const char *text);

enum cn_yaml_type {
    CN_YAML_SCALAR,
    CN_YAML_LIST,
    CN_YAML_MAP,
};

struct cn_yaml_node {
    enum cn_yaml_type type;
    char *key; // as an entry of a map, else NULL
    struct cn_mark key_mark;
    char *text; // of a scalar
    bool plain; // a scalar without quotes
    bool bad;   // reported already
    struct cn_mark mark;
    struct cn_yaml_node *first, *last, *next; // children; the next one beside this
    size_t count;                             // of children
};

// The document, NULL for an empty one. Mistakes go to report, with what could be read in *root
// nevertheless, so that the caller can go on and find more. CN_ENOMEM is the only error returned.
cn_err cn_yaml_parse(const char *text, size_t size, struct cn_diagnostics *report,
                     struct cn_yaml_node **root);
void cn_yaml_free(struct cn_yaml_node *root);

// The entry of a map, or NULL; node may be NULL.
const struct cn_yaml_node *cn_yaml_get(const struct cn_yaml_node *node, const char *key);
