#include "runtime/base/whole_number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool cn_whole_number_read(const char *text, uint64_t min, uint64_t max, uint64_t *number)
{
    unsigned long long value;

    if (!text[0] || text[strspn(text, "0123456789")])
        return false;
    errno = 0;
    value = strtoull(text, NULL, 10);
    if (errno || value < min || value > max)
        return false;
    *number = value;
    return true;
}
