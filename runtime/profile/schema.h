// schema.h - the one table of every key that a profile may have.
//
// Reading, printing, the template and the checks of PROFILES.md all walk this table, so a new key
// is one new row here and one new line there.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/profile/profile.h"

// Files in the order in which they are laid over each other.
enum cn_layer {
    CN_LAYER_BOARD,
    CN_LAYER_SITE,
    CN_LAYER_JOB,
    CN_LAYER_COUNT,
};

enum cn_value_type {
    CN_VALUE_LINK,      // read by the loader itself, nothing is stored: schema, extends, job
    CN_VALUE_NAME,      // char[CN_NAME_SIZE], cn_name_valid
    CN_VALUE_PATH,      // char[CN_PATH_SIZE]
    CN_VALUE_LISTEN,    // char[CN_ADDRESS_SIZE], "host:port"
    CN_VALUE_CHOICE,    // an enum
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
    CN_VALUE_ADDRESSES, // of the aggregator: one or a list
    CN_VALUE_LISTENS,   // of the gateway: one or a list
    CN_VALUE_MEMBERS,   // name: address
    CN_VALUE_DATA,      // name: {inputs, labels}
    CN_VALUE_SETS,      // char[CN_SETS_SIZE], name: rule or list of boards; as in set_rules.h
    CN_VALUE_PHASES,    // char[CN_WORDS_SIZE], name: first round; as in set_rules.h
    CN_VALUE_WORDS,     // char[CN_WORDS_SIZE]: one or a list; numbers where max is not 0
};

// Bits of enum cn_profile_use.
#define CN_USE_TRAIN (1u << CN_PROFILE_TRAIN)
#define CN_USE_NODE (1u << CN_PROFILE_NODE)
#define CN_USE_GATEWAY (1u << CN_PROFILE_GATEWAY)
#define CN_USE_LOOK (1u << CN_PROFILE_LOOK)
#define CN_USE_ALL (CN_USE_TRAIN | CN_USE_NODE | CN_USE_GATEWAY | CN_USE_LOOK)

struct cn_schema_row {
    const char
        *path; // "group.listen"; keys of a job start with "job.", which a job file leaves out
    enum cn_value_type type;
    unsigned layers;  // bits of enum cn_layer: who may set it
    size_t offset;    // into struct cn_settings
    double min, max;  // of numbers, in the unit of the type
    const char *zero; // a word for 0, which then needs no unit and may lie below min; or NULL
    bool word_only;   // the word is accepted for that, 0 is not
    const char *const *choices; // of CN_VALUE_CHOICE, in the order of the enum; ends with NULL
    const char *initial;        // the default as it would be written; NULL: not set
    const char *example;        // for the template, where there is no default
    unsigned required;          // programs that cannot do without
    unsigned uses;              // programs that read it
    const char *about;          // one line
};

extern const struct cn_schema_row cn_schema[];
extern const size_t cn_schema_count;

// The row with this path, or NULL.
const struct cn_schema_row *cn_schema_find(const char *path);

// The row that path means in a file of this layer: a job may set some keys outside "job.".
const struct cn_schema_row *cn_schema_resolve(const char *path, enum cn_layer layer);

// True when path is the beginning of rows: "job.update". For a job also without "job.".
bool cn_schema_is_section(const char *path, enum cn_layer layer);

// True for a key that has no meaning with these settings: density where nothing is left out.
bool cn_schema_idle(const struct cn_schema_row *row, const struct cn_settings *settings);

// "board", "site", "job".
const char *cn_layer_name(enum cn_layer layer);
