// log_recent.h - the newest lines of the log, kept in memory.
//
// Nothing is kept before cn_log_recent_open. Threading: any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

// Keeps the newest `size` bytes of the log from now on; drops what was kept before. Returns
// CN_ENOMEM.
cn_err cn_log_recent_open(size_t size);

// Frees what is kept and keeps nothing more.
void cn_log_recent_close(void);

// Returns whether lines are kept.
bool cn_log_recent_is_open(void);

// Adds a line, newline included. cn_log calls it for each line.
void cn_log_recent_add(const char *line, size_t length);

// Copies the newest whole lines to `to`, oldest first: at most `lines`, and at most size bytes.
// Returns the number of bytes copied.
size_t cn_log_recent_read(uint32_t lines, char *to, size_t size);
