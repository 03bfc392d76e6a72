// name.h - names of boards, groups, jobs and data sets.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_NAME_SIZE 64 // with the terminating 0

// True for 1 to 63 characters of [a-z0-9._-] that start with a letter or digit: safe as a file
// name, a URI segment and a PSK identity.
bool cn_name_valid(const char *name);

// 32 bits of FNV-1a: what stands for a name where its text would be too long.
uint32_t cn_name_hash(const char *name);
