// quantity.h - numbers as people write them: "8 GiB", "1.5 s", "0.05", "5 %".
//
// Reading is strict: nothing before or after, no sign except for numbers, no leading zeros, no
// infinity or NaN. Printing gives text that reads back as the same value.
#pragma once

#include <stdint.h>

#include "runtime/base/error.h"

#define CN_QUANTITY_SIZE 40 // of printed text

// Names of a unit, ascending factors, the first factor is 1; ends with a NULL name.
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

// CN_EFORMAT: no number; CN_ENOTFOUND: the unit is missing or unknown; CN_EINVAL: a fraction of the
// smallest unit; CN_ERANGE: too large.
cn_err cn_quantity_parse(const char *text, const struct cn_unit *units, uint64_t *value);
void cn_quantity_print(char text[CN_QUANTITY_SIZE], const struct cn_unit *units, uint64_t value);

// CN_EFORMAT or CN_ERANGE (not finite).
cn_err cn_number_parse(const char *text, double *value);
void cn_number_print(char text[CN_QUANTITY_SIZE], double value);

// "5 %" is 0.05. CN_ENOTFOUND: no "%".
cn_err cn_share_parse(const char *text, double *value);
void cn_share_print(char text[CN_QUANTITY_SIZE], double value);
