#include "runtime/base/name.h"

#include <string.h>

bool cn_name_valid(const char *name)
{
    size_t length = strlen(name);

    if (length < 1 || length >= CN_NAME_SIZE || strchr("._-", name[0]))
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}
