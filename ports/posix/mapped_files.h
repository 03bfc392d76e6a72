// mapped_files.h - the files that this process has mapped, and what happens when one of them
// changes.
//
// A page of a mapped file that became shorter, or whose disk fails, cannot be read: the kernel
// sends SIGBUS to the thread that reads it. A handler then names the file on standard error and
// ends the process with code 1. It ends the process itself, since no thread can go on without the
// bytes. Faults outside of the mapped files end the process as they do without the handler.
// Threading: any thread.
#pragma once

#include <stddef.h>
#include <sys/stat.h>

#include "runtime/base/error.h"

// Reads the status of an open file, for cn_mapped_files_add. The clock that stamps files stands
// still between its ticks (1 to 10 ms), so a write in the tick of the file's last one would leave
// the time as it is. The call therefore waits until that tick is over.
cn_err cn_mapped_files_status(int descriptor, struct stat *status);

// Keeps in mind that the file of path, which had this status when it was opened, is mapped at data.
// Copies path. CN_ENOMEM.
cn_err cn_mapped_files_add(const void *data, size_t size, const char *path,
                           const struct stat *status);

// Forgets a mapping, before it is unmapped. Does nothing for memory that was not added.
void cn_mapped_files_remove(const void *data);
