// output_file.h - writes the file that a command was asked for.
#pragma once

#include "runtime/base/bytes.h"

// Writes the file completely or not at all: under another name, which is then renamed. An older
// file is replaced; a device, a link or a folder at the path is refused. Prints what went wrong.
// Returns the exit code.
int cn_output_file_write(const char *path, const struct cn_buffer *buffer);

// Writes everything to an open descriptor. Returns false, with errno set, when that fails.
bool cn_output_file_fill(int file, const void *data, size_t size);
