// schema.h - the one table of every key that a profile may have.
//
// Reading, printing, the template and the check of PROFILES.md all use this table. So a new key is
// one new row here and one new line in PROFILES.md.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/profile/profile.h"

// Kinds of files, from the lowest layer to the highest. A value of a higher layer replaces that of
// a lower one.
enum cn_layer {
    CN_LAYER_BOARD,
    CN_LAYER_SITE,
    CN_LAYER_JOB,
    CN_LAYER_COUNT,
};

enum cn_value_type {
    CN_VALUE_LINK,      // schema, extends and job: read by profile.c itself, not stored
    CN_VALUE_NAME,      // char[CN_NAME_SIZE], cn_name_valid
    CN_VALUE_PATH,      // char[CN_PATH_SIZE]
    CN_VALUE_LISTEN,    // char[CN_ADDRESS_SIZE], "host:port"
    CN_VALUE_HTTP,      // char[CN_PATH_SIZE], "host:port" or "unix:PATH"
    CN_VALUE_CHOICE,    // an enum; a word of cn_schema_row.choices
    CN_VALUE_BOOL,      // bool
    CN_VALUE_COUNT,     // uint32_t
    CN_VALUE_LONG,      // uint64_t
    CN_VALUE_NUMBER,    // double
    CN_VALUE_SHARE,     // double, written in %
    CN_VALUE_SIZE,      // uint64_t bytes
    CN_VALUE_DURATION,  // uint64_t ms
    CN_VALUE_POWER,     // uint64_t mW
    CN_VALUE_HEAT,      // uint64_t thousandths of a degree Celsius
    CN_VALUE_RATE,      // uint64_t bit/s
    CN_VALUE_ADDRESSES, // addresses of the aggregator: one or a list
    CN_VALUE_LISTENS,   // listen addresses of the gateway: one or a list
    CN_VALUE_MEMBERS,   // name: address
    CN_VALUE_DATA,      // name: {inputs, labels}
    CN_VALUE_SETS,      // char[CN_SETS_SIZE], "name: rule or list of boards" (set_rules.h)
    CN_VALUE_PHASES,    // char[CN_WORDS_SIZE], "name: first round" (set_rules.h)
    CN_VALUE_RULE,      // char[CN_RULE_SIZE], a rule (rule.h); "": .zero
    CN_VALUE_WORDS,     // char[CN_WORDS_SIZE], one word or a list; numbers where max is not 0
};

// Bits of enum cn_profile_use.
#define CN_USE_TRAIN (1u << CN_PROFILE_TRAIN)
#define CN_USE_NODE (1u << CN_PROFILE_NODE)
#define CN_USE_GATEWAY (1u << CN_PROFILE_GATEWAY)
#define CN_USE_LOOK (1u << CN_PROFILE_LOOK)
#define CN_USE_ALL (CN_USE_TRAIN | CN_USE_NODE | CN_USE_GATEWAY | CN_USE_LOOK)

struct cn_schema_row {
    // "group.listen". Keys of a job start with "job.", which a job file leaves out.
    const char *path;
    enum cn_value_type type;
    unsigned layers;            // layers that may set the key, as bits of enum cn_layer
    size_t offset;              // offset of the value in struct cn_settings
    double min, max;            // limits of a number, in the unit of the type
    const char *zero;           // word for 0, which needs no unit and may lie below min; NULL: none
    bool word_only;             // only the word stands for 0; the number 0 is refused
    const char *const *choices; // words of CN_VALUE_CHOICE in enum order; ends with NULL
    const char *initial;        // the default as a profile would have it; NULL: no default
    const char *example;        // value for the template if there is no default
    unsigned required;          // programs that require the key (CN_USE_*)
    unsigned suggested;         // programs whose template sets the key to the example (CN_USE_*)
    unsigned uses;              // programs that read the key (CN_USE_*)
    const char *about;          // description in one line, for templates and the manual page
};

extern const struct cn_schema_row cn_schema[];
extern const size_t cn_schema_count;

// Returns the row with this path, or NULL.
const struct cn_schema_row *cn_schema_find(const char *path);

// Returns the row that path means in a file of this layer, or NULL. A job file leaves out "job.",
// but may also set some keys outside of it.
const struct cn_schema_row *cn_schema_resolve(const char *path, enum cn_layer layer);

// Returns true when path is a section, the beginning of the paths of rows: "job.update". In a job
// file, path may be "job." and a section outside of the job.
bool cn_schema_is_section(const char *path, enum cn_layer layer);

// Returns whether a file of this layer may have path, the full path of a key or of a section.
bool cn_schema_allows(const char *path, enum cn_layer layer);

// Returns true for a key that has no effect with these settings: the density or value_bits of an
// update whose mode is not topk.
bool cn_schema_idle(const struct cn_schema_row *row, const struct cn_settings *settings);

// Returns "board", "site" or "job".
const char *cn_layer_name(enum cn_layer layer);
