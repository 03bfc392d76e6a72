// profile_value.h - one value of a profile: from YAML into the settings and back to text.
#pragma once

#include <stdio.h>

#include "runtime/profile/notation/quantity.h"
#include "runtime/profile/notation/yaml_tree.h"
#include "runtime/profile/schema.h"

// Reads the value node of a row into settings. key is its name for messages; paths are relative to
// directory. Returns false after a mistake, which is in report; the settings may then hold a part
// of the value.
bool cn_value_read(struct cn_diagnostics *report, const char *directory, const char *key,
                   const struct cn_schema_row *row, const struct cn_yaml_node *node,
                   struct cn_settings *settings);

// Sets the default of a row. Does nothing for a row without one.
void cn_value_reset(const struct cn_schema_row *row, struct cn_settings *settings);

// Prints the value so that it reads back. Relative paths become absolute, except in unix:PATH.
void cn_value_print(const struct cn_schema_row *row, const struct cn_settings *settings,
                    FILE *stream);

// Prints text so that YAML reads it back as this text.
void cn_value_print_text(const char *text, FILE *stream);

// Returns the units of a type; cn_units_none for a type without units.
const struct cn_unit *cn_value_units(enum cn_value_type type);

// Returns true for words that YAML readers take for a truth value or for null.
bool cn_value_is_special(const char *text);

// Return or set a value of CN_VALUE_COUNT or of a uint64_t type.
uint64_t cn_value_integer(const struct cn_schema_row *row, const struct cn_settings *settings);
void cn_value_set_integer(const struct cn_schema_row *row, uint64_t value,
                          struct cn_settings *settings);

#define CN_WANTED_SIZE 200 // bytes of the text of cn_value_wanted, which is cut to fit

// Describes the values that a row takes: "a time from 100 ms to 24 h (ms, s, min, h)". Returns
// wanted.
const char *cn_value_wanted(char wanted[CN_WANTED_SIZE], const struct cn_schema_row *row);

// Returns the port of a valid "host:port" and sets *host_length to the length of the host.
uint32_t cn_value_port(const char *address, size_t *host_length);
