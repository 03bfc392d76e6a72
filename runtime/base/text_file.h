// text_file.h - reads small text files of the kernel and the distribution (sysfs, procfs, /etc).
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Reads the first line of folder/name, cut to size - 1 bytes, without the white space at its end.
// Returns false and an empty line when the file is missing, unreadable or empty.
bool cn_text_file_line(const char *folder, const char *name, char *line, size_t size);
