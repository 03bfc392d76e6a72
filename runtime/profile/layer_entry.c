#include "runtime/profile/layer_entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Copies the part before the last '=' to name and returns the part after it. Returns NULL when
// there is no '=', or the part before it is empty or too long.
static const char *cut(const char *entry, char name[CN_WORDS_SIZE])
{
    const char *equals = strrchr(entry, '=');

    if (!equals || equals == entry || equals - entry >= CN_WORDS_SIZE)
        return NULL;
    snprintf(name, CN_WORDS_SIZE, "%.*s", (int)(equals - entry), entry);
    return equals + 1;
}

// Reads a plain decimal number that ends with this unit.
static bool get_number(const char *text, const char *unit, double *value)
{
    size_t length = strspn(text, "0123456789.");
    char *end;

    *value = strtod(text, &end);
    return length && (size_t)(end - text) == length && strcmp(end, unit) == 0;
}

bool cn_layer_entry_density(const char *entry, char name[CN_WORDS_SIZE], double *density)
{
    const char *text = cut(entry, name);

    if (!text || !get_number(text, "%", density))
        return false;
    *density /= 100;
    return *density > 0 && *density <= 1;
}

bool cn_layer_entry_priority(const char *entry, char name[CN_WORDS_SIZE], int *priority)
{
    const char *text = cut(entry, name);
    double value;

    if (!text || !get_number(text, "", &value))
        return false;
    for (*priority = -CN_LAYER_PRIORITY_MAX; *priority <= CN_LAYER_PRIORITY_MAX; ++*priority) {
        double power = *priority < 0 ? 1.0 / (double)(1 << -*priority) : (double)(1 << *priority);

        if (value >= power && value <= power)
            return true;
    }
    return false;
}
