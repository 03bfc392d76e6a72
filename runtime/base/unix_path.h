// unix_path.h - addresses "unix:PATH", which name a socket file.
#pragma once

#include <string.h>

#define CN_UNIX_PREFIX "unix:"

// Returns the path within the address, or NULL for an address of another form.
static inline const char *cn_unix_path(const char *address)
{
    size_t length = strlen(CN_UNIX_PREFIX);

    return strncmp(address, CN_UNIX_PREFIX, length) == 0 ? address + length : NULL;
}
