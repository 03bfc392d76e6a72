// quantity.h - numbers as people write them: "8 GiB", "1.5 s", "0.05", "5 %".
//
// Reading is strict: no text before or after, no leading zeros, no infinity or NaN, and a minus
// sign only before plain numbers and shares. Printing gives text that reads back as the same value.
// Threading: none.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

#define CN_QUANTITY_SIZE 40 // bytes of printed text with its terminating 0

// A unit. Arrays of units have ascending factors, the first of them 1, and end with a NULL name.
struct cn_unit {
    const char *name;
    uint64_t factor;
};

extern const struct cn_unit cn_units_none[]; // plain counts
extern const struct cn_unit cn_units_size[];
extern const struct cn_unit cn_units_time[];
extern const struct cn_unit cn_units_power[];
extern const struct cn_unit cn_units_heat[]; // degrees Celsius
extern const struct cn_unit cn_units_rate[];

// Reads a number with a unit and sets *value to the number of smallest units. Returns CN_EFORMAT
// for text that is no number, CN_ENOTFOUND for a missing or unknown unit, CN_EINVAL for a fraction
// of the smallest unit, CN_ERANGE for a number that is too large.
cn_err cn_quantity_parse(const char *text, const struct cn_unit *units, uint64_t *value);

// Prints value, a number of smallest units, with the largest unit that gives a whole number.
void cn_quantity_print(char text[CN_QUANTITY_SIZE], const struct cn_unit *units, uint64_t value);

// Reads a plain number. Returns CN_EFORMAT, or CN_ERANGE when it is not finite.
cn_err cn_number_parse(const char *text, double *value);
void cn_number_print(char text[CN_QUANTITY_SIZE], double value);

// Reads a share: "5 %" is 0.05. Returns CN_ENOTFOUND without "%", else as cn_number_parse.
cn_err cn_share_parse(const char *text, double *value);
void cn_share_print(char text[CN_QUANTITY_SIZE], double value);
