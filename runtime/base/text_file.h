// text_file.h - what small text files of the kernel and the distribution say (sysfs, procfs, /etc).
#pragma once

#include <stdbool.h>
#include <stddef.h>

// The first line of folder/name without the white space at its end, cut to size - 1 bytes. False,
// and an empty line, when there is no such file, it cannot be read or is empty.
bool cn_text_file_line(const char *folder, const char *name, char *line, size_t size);
