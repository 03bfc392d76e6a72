#include "runtime/base/name.h"

#include <string.h>

bool cn_name_valid(const char *name)
{
    size_t length = strlen(name);

    if (length < 1 || length >= CN_NAME_SIZE || strchr("._-", name[0]))
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

uint32_t cn_name_hash(const char *name)
{
    uint32_t hash = 2166136261u;

    for (const char *c = name; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return hash;
}
