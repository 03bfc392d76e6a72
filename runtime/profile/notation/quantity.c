#include "runtime/profile/notation/quantity.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"
#define KIB UINT64_C(1024)

const struct cn_unit cn_units_none[] = {{"", 1}, {NULL, 0}};
const struct cn_unit cn_units_size[] = {
    {"B", 1}, {"KiB", KIB}, {"MiB", KIB *KIB}, {"GiB", KIB *KIB *KIB}, {"TiB", KIB *KIB *KIB *KIB},
    {NULL, 0}};
const struct cn_unit cn_units_time[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {NULL, 0}};
const struct cn_unit cn_units_power[] = {{"mW", 1}, {"W", 1000}, {"kW", 1000000}, {NULL, 0}};
const struct cn_unit cn_units_heat[] = {{"mC", 1}, {"C", 1000}, {NULL, 0}};
const struct cn_unit cn_units_rate[] = {
    {"bit/s", 1}, {"kbit/s", 1000}, {"Mbit/s", 1000000}, {"Gbit/s", 1000000000}, {NULL, 0}};

// Returns the length of the digits at text if they are a whole number without a leading zero, else
// 0.
static size_t whole_length(const char *text)
{
    size_t length = strspn(text, DIGITS);

    return length > 1 && text[0] == '0' ? 0 : length;
}

// Appends length decimal digits to value.
static cn_err add_digits(const char *text, size_t length, uint64_t *value)
{
    for (size_t i = 0; i < length; i++)
        if (__builtin_mul_overflow(*value, UINT64_C(10), value) ||
            __builtin_add_overflow(*value, (uint64_t)(text[i] - '0'), value))
            return CN_ERANGE;
    return CN_OK;
}

static const struct cn_unit *find_unit(const struct cn_unit *units, const char *name)
{
    for (; units->name; units++)
        if (strcmp(units->name, name) == 0)
            return units;
    return NULL;
}

cn_err cn_quantity_parse(const char *text, const struct cn_unit *units, uint64_t *value)
{
    size_t whole = whole_length(text), decimals = 0;
    const char *fraction = text + whole, *rest = fraction;
    const struct cn_unit *unit;
    uint64_t amount = 0, divisor = 1;
    cn_err err;

    if (whole == 0)
        return CN_EFORMAT;
    if (rest[0] == '.') {
        fraction = rest + 1;
        decimals = strspn(fraction, DIGITS);
        if (decimals == 0)
            return CN_EFORMAT;
        rest = fraction + decimals;
    }
    if (rest[0] == ' ' && rest[1] != '\0')
        rest++;
    unit = find_unit(units, rest);
    if (!unit)
        return CN_ENOTFOUND;

    while (decimals > 0 && fraction[decimals - 1] == '0')
        decimals--;
    err = add_digits(text, whole, &amount);
    if (err)
        return err;
    if (add_digits(fraction, decimals, &amount))
        return CN_EINVAL;
    for (size_t i = 0; i < decimals; i++)
        if (__builtin_mul_overflow(divisor, UINT64_C(10), &divisor))
            return CN_EINVAL;
    if (__builtin_mul_overflow(amount, unit->factor, &amount))
        return decimals ? CN_EINVAL : CN_ERANGE;
    if (amount % divisor)
        return CN_EINVAL;
    *value = amount / divisor;
    return CN_OK;
}

void cn_quantity_print(char text[CN_QUANTITY_SIZE], const struct cn_unit *units, uint64_t value)
{
    const char *name = units[0].name;
    uint64_t amount = value;

    for (size_t i = 1; value && units[0].name[0] && units[i].name; i++)
        if (units[i].factor && value % units[i].factor == 0) {
            name = units[i].name;
            amount = value / units[i].factor;
        }
    snprintf(text, CN_QUANTITY_SIZE, "%" PRIu64 "%s%s", amount, name[0] ? " " : "", name);
}

// Returns whether text is [-]digits[.digits][e[+-]digits]: strtod would also accept "inf", "0x1"
// and " 1".
static bool is_number(const char *text)
{
    size_t length;

    text += text[0] == '-';
    length = whole_length(text);
    if (length == 0)
        return false;
    text += length;
    if (text[0] == '.') {
        length = strspn(text + 1, DIGITS);
        if (length == 0)
            return false;
        text += 1 + length;
    }
    if (text[0] == 'e' || text[0] == 'E') {
        text += 1 + (text[1] == '+' || text[1] == '-');
        length = strspn(text, DIGITS);
        if (length == 0)
            return false;
        text += length;
    }
    return text[0] == '\0';
}

cn_err cn_number_parse(const char *text, double *value)
{
    if (!is_number(text))
        return CN_EFORMAT;
    *value = strtod(text, NULL);
    return isfinite(*value) ? CN_OK : CN_ERANGE;
}

// Returns whether text has no exponent, or value is so large or small that it needs one.
static bool is_readable(const char *text, double value)
{
    return !strchr(text, 'e') || fabs(value) < 1e-4 || fabs(value) >= 1e15;
}

void cn_number_print(char text[CN_QUANTITY_SIZE], double value)
{
    double back = 0.0;

    // Prints the shortest text that reads back as the same value; 17 digits always do.
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, CN_QUANTITY_SIZE, "%.*g", digits, value);
        if (cn_number_parse(text, &back) == CN_OK && back == value && is_readable(text, value))
            return;
    }
}

cn_err cn_share_parse(const char *text, double *value)
{
    char number[CN_QUANTITY_SIZE];
    size_t length = strlen(text);
    cn_err err;

    if (length == 0 || text[length - 1] != '%')
        return strspn(text, DIGITS) ? CN_ENOTFOUND : CN_EFORMAT;
    length--;
    if (length && text[length - 1] == ' ')
        length--;
    if (length >= sizeof(number))
        return CN_EFORMAT;
    memcpy(number, text, length);
    number[length] = '\0';
    err = cn_number_parse(number, value);
    if (err == CN_OK)
        *value /= 100.0;
    return err;
}

void cn_share_print(char text[CN_QUANTITY_SIZE], double value)
{
    double back = 0.0;

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, CN_QUANTITY_SIZE, "%.*g %%", digits, value * 100.0);
        if (cn_share_parse(text, &back) == CN_OK && back == value &&
            is_readable(text, value * 100.0))
            return;
    }
}
