// platform.h - clock, files and facts of the machine. One implementation per program, linked in.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_store;

// Milliseconds since boot, suspend included (CLOCK_BOOTTIME). Never goes back; says nothing about
// the date: boards may believe it is 1970.
uint64_t cn_platform_now_ms(void);

// The same clock in microseconds, for pacing and statistics.
uint64_t cn_platform_now_us(void);

// A file mapped read-only. data is NULL for an empty file.
struct cn_mapping {
    const uint8_t *data;
    size_t size;
};

// CN_ENOTFOUND, CN_EIO, CN_ERANGE when larger than limit. When the file is cut off while it is
// mapped, reading what is gone ends the process with code 1 and a line that names the file.
cn_err cn_platform_map(const char *path, size_t limit, struct cn_mapping *mapping);
void cn_platform_unmap(struct cn_mapping *mapping);

// Whether the mapped file was written to since it was mapped. Another file that took its name by a
// rename is no change. Sets *path to the file's path then, which is valid until it is unmapped.
bool cn_platform_mapping_changed(const struct cn_mapping *mapping, const char **path);

// A file that is on no disk: zeros, of which fill writes some. What it does not touch takes no
// memory. fill has size bytes and may fail; CN_ENOMEM.
typedef cn_err cn_platform_fill(void *context, uint8_t *zeros);
cn_err cn_platform_map_filled(size_t size, cn_platform_fill *fill, void *context,
                              struct cn_mapping *mapping);

// What was read of a mapping of a file leaves this process's memory; it comes again when it is
// looked at.
void cn_platform_forget(const struct cn_mapping *mapping);

// Maps a file that a name from outside points to, in the folder of the file neighbour or below.
// CN_EINVAL when the name is absolute or has "..", or when a part of it is a symbolic link or the
// file is not a regular one.
cn_err cn_platform_map_beside(const char *neighbour, const char *name, size_t limit,
                              struct cn_mapping *mapping);

// Calls visit for each name in a directory, in any order; an error of visit ends the walk.
cn_err cn_platform_list(const char *directory, cn_err (*visit)(void *context, const char *name),
                        void *context);

// Opens a directory as a store and makes it, with its parents, when it is missing. Takes a lock: a
// second process gets CN_EEXIST. Leftovers of a crash are removed. Close with store->ops->close.
cn_err cn_platform_open_store(const char *directory, struct cn_store **store);

void cn_platform_sleep_ms(uint32_t duration_ms);

// Bytes that may still be written below path.
cn_err cn_platform_disk_free(const char *path, uint64_t *bytes);

// Processors this process may run on, at least 1.
unsigned cn_platform_cpu_count(void);

// Bytes of memory of the machine; 0 when not known.
uint64_t cn_platform_memory_size(void);

// From here on a block of a mebibyte and more that is freed goes back to the system at once,
// instead of staying in this process for later ones that may not fit into it.
void cn_platform_return_memory(void);

// Keeps the memory of this process, with the keys in it, out of core dumps and from debuggers of
// the same user. The environment variable CAIRN_CORE_DUMPS=1 allows both, for developers. Files of
// /proc/self that only their owner may open belong to root from here on.
void cn_platform_hide_memory(void);

// Peak resident memory of this process in bytes.
uint64_t cn_platform_peak_memory(void);

// Tells the service manager that started this program: "READY=1", "WATCHDOG=1", "STATUS=text",
// "STOPPING=1", or several lines of them. Does nothing without such a manager.
void cn_platform_notify(const char *state);

// A file that only informs: replaced whole, but not synced to disk. A write in vain costs nothing
// that matters, so a board's flash is spared.
cn_err cn_platform_replace_note(const char *path, const char *text);

enum cn_hook_state {
    CN_HOOK_RUNNING,
    CN_HOOK_DONE,
    CN_HOOK_FAILED, // *code: its exit code, or 128 and the number of the signal that ended it
    CN_HOOK_LATE,   // it was ended, with all it started, after its time
};

// Starts the program path with this environment ("NAME=value", ends with NULL) and does not wait
// for it. It is ended after limit_s seconds, whatever becomes of this program. CN_ENOTFOUND when
// it cannot be executed.
cn_err cn_platform_start_hook(const char *path, char *const environment[], unsigned limit_s,
                              int64_t *hook);

// Once it says other than running, the hook is forgotten.
enum cn_hook_state cn_platform_poll_hook(int64_t hook, int *code);
