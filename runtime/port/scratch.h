// scratch.h - memory for large arrays, which may lie in files.
//
// An array in a file does not need to stay in memory. The system writes its pages to the disk after
// some seconds, or at once when memory is short, and reads them again when they are used. So a
// board may hold rows of a model that is larger than its memory. The file has no name: it is gone
// with the array, or with the process. A failing disk ends the process. Threading: all functions
// may be called from any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CN_SCRATCH_LEAST ((size_t)1 << 20) // smaller arrays always lie in memory

// From now on, new arrays lie in files in this folder as long as keep_free bytes of its file system
// stay free; NULL: in memory. Existing arrays stay where they are. folder is copied.
void cn_scratch_use(const char *folder, uint64_t keep_free);

// Allocates size bytes of zeros; size may be 0. The array lies in memory when the folder has no
// room for it, which is logged once, cannot have such files, or is itself in memory. Returns NULL
// when memory has no room either. Free it with cn_scratch_free, never with free.
void *cn_scratch_allocate(size_t size);

// As cn_scratch_allocate, but whatever cn_scratch_use said, the array lies in a file in this folder
// if that has room for it beside keep_free bytes: for an array that is soon freed again.
void *cn_scratch_allocate_in(const char *folder, uint64_t keep_free, size_t size);

// Accepts NULL.
void cn_scratch_free(void *array);

// Returns whether a file for an array of this size could be made in the folder.
bool cn_scratch_has_room(const char *folder, uint64_t keep_free, size_t size);

// Returns the bytes of all arrays that lie in files.
uint64_t cn_scratch_in_files(void);
