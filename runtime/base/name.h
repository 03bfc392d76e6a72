// name.h - names of boards, groups, jobs and data sets.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_NAME_SIZE 64 // with the terminating 0

// Returns whether name is 1 to 63 characters of [a-z0-9._-] that start with a letter or digit. Such
// a name is safe as a file name, a URI segment and a PSK identity.
bool cn_name_valid(const char *name);

// Returns 32 bits of FNV-1a, which stand for a name where its text would be too long.
uint32_t cn_name_hash(const char *name);
