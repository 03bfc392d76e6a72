// platform.h - clock, files and facts of the machine. One implementation per program, linked in.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_store;

// Returns the milliseconds since boot, time in suspend included (CLOCK_BOOTTIME). This clock never
// goes back and does not depend on the date, which a board may not know.
uint64_t cn_platform_now_ms(void);

// Returns the same clock in microseconds, for pacing and statistics.
uint64_t cn_platform_now_us(void);

// A file mapped read-only. data is NULL for an empty file.
struct cn_mapping {
    const uint8_t *data;
    size_t size;
};

// Maps a regular file. Returns CN_ENOTFOUND, CN_ENOMEM, CN_EIO, or CN_ERANGE when the file is
// larger than limit bytes. When the file becomes shorter while it is mapped, reading the lost bytes
// ends the process with code 1 and a line that names the file, or stops the thread
// (cn_platform_hold_faults).
cn_err cn_platform_map(const char *path, size_t limit, struct cn_mapping *mapping);
void cn_platform_unmap(struct cn_mapping *mapping);

// Returns whether the mapped file was written to since it was mapped. If so, sets *path to its
// path, valid until the file is unmapped. Another file that took its name by a rename is no change.
bool cn_platform_mapping_changed(const struct cn_mapping *mapping, const char **path);

// With hold, a thread that reads a mapped file which was cut off waits from now on, so that the
// process can still tell of it before it ends. The calling thread still ends the process at once.
// Without hold, a thread that waits ends the process: call it so before you join threads.
void cn_platform_hold_faults(bool hold);
// Returns why a thread waits, a sentence that names the file; NULL: none waits.
const char *cn_platform_fault(void);

// Maps size bytes of zeros without a file and calls fill once to write to them; afterwards they are
// read-only. Pages that fill does not touch take no memory. Returns the error of fill, or
// CN_ENOMEM.
typedef cn_err cn_platform_fill(void *context, uint8_t *zeros);
cn_err cn_platform_map_filled(size_t size, cn_platform_fill *fill, void *context,
                              struct cn_mapping *mapping);

// Drops the pages of a mapped file from this process's memory. A later access reads them again.
void cn_platform_forget(const struct cn_mapping *mapping);

// Maps a file whose name comes from outside: a path relative to the folder of the file neighbour.
// Returns CN_EINVAL when name is absolute or has "..", when a part of it is a symbolic link, or
// when it is not a regular file. Other errors are those of cn_platform_map.
cn_err cn_platform_map_beside(const char *neighbour, const char *name, size_t limit,
                              struct cn_mapping *mapping);

// Calls visit for each name in a directory, "." and ".." included, in any order. An error of visit
// ends the walk and is returned.
cn_err cn_platform_list(const char *directory, cn_err (*visit)(void *context, const char *name),
                        void *context);

// Opens a directory as a store. Creates the directory and its parents when they are missing. Locks
// it: a second process gets CN_EEXIST. Removes leftovers of a crash. Close the store with
// (*store)->ops->close.
cn_err cn_platform_open_store(const char *directory, struct cn_store **store);

void cn_platform_sleep_ms(uint32_t duration_ms);

// Sets *bytes to the free space, on the file system that holds path, that this process may use.
cn_err cn_platform_disk_free(const char *path, uint64_t *bytes);

// Sets *bytes to the size of the file system that holds path.
cn_err cn_platform_disk_size(const char *path, uint64_t *bytes);

// Returns the number of processors that this process may run on, at least 1.
unsigned cn_platform_cpu_count(void);

// Returns the machine's memory in bytes; 0 when unknown.
uint64_t cn_platform_memory_size(void);

// Makes free() return blocks of 1 MiB and more to the system at once. Without this call they would
// stay in the process, fragmented, for later allocations. Call it once at start.
void cn_platform_return_memory(void);

// Keeps the memory of this process, with the keys in it, out of core dumps and out of the reach of
// debuggers of the same user. The environment variable CAIRN_CORE_DUMPS=1 allows both, for
// developers. After the call, files of /proc/self that only their owner may open belong to root.
void cn_platform_hide_memory(void);

// Returns the peak resident memory of this process in bytes; 0 when unknown.
uint64_t cn_platform_peak_memory(void);

// What this process uses now, for monitors. A member that is not known is 0.
struct cn_platform_usage {
    uint64_t resident;    // memory in RAM, in bytes
    double cpu_s;         // processor time since the process started, in seconds
    uint32_t files;       // number of open file descriptors
    uint64_t files_most;  // highest number of file descriptors that may be open
    double since_epoch_s; // when the process started, in seconds since 1970
};

// Fills in all members.
void cn_platform_read_usage(struct cn_platform_usage *usage);

// Returns when this process started, in clock ticks after boot; 0: not known. With the process's
// number it names a process for good: numbers are used again, and each container has its own.
uint64_t cn_platform_process_start(void);

// Sends state to the service manager (systemd) that started this program: one or several lines of
// "READY=1", "WATCHDOG=1", "STATUS=text" and "STOPPING=1". Does nothing without such a manager.
void cn_platform_notify(const char *state);

// Returns whether a service manager started this program, which starts it again when it fails.
bool cn_platform_is_service(void);

// Makes the names in a directory durable: those of files that were made, renamed or removed there.
cn_err cn_platform_sync_directory(const char *directory);
// The same for the directory in which path lies.
cn_err cn_platform_sync_parent(const char *path);

// Replaces a note, a file that only informs, as a whole. The note is not synced to disk, which
// spares a board's flash: its loss in a power cut does no harm.
cn_err cn_platform_replace_note(const char *path, const char *text);

// As cn_platform_replace_note, for a note that other users may read.
cn_err cn_platform_publish_note(const char *path, const char *text);

// Closes all descriptors above standard error, except keep; -1: all. For a child after fork, which
// must not hold what its parent has open. Calls only async-signal-safe functions.
void cn_platform_close_inherited(int keep);

// A hook is a program that runs beside this one.
enum cn_hook_state {
    CN_HOOK_RUNNING,
    CN_HOOK_DONE,   // it ended with exit code 0
    CN_HOOK_FAILED, // *code is its exit code, or 128 + the number of the signal that ended it
    CN_HOOK_LATE,   // it reached its time limit and was ended, with all that it started
};

// Returns the line of this program's environment that says where programs are looked for,
// "PATH=...", or a default. It belongs to the environment.
char *cn_platform_path_line(void);

// Starts the program path with this environment ("NAME=value", ends with NULL) and does not wait
// for its end. The hook runs until it and all that it started have ended; when it ends, what is
// left of its process group is ended. After limit_s seconds all of it is ended, even if this
// program ends before. Returns CN_ENOTFOUND when path cannot be executed, CN_ENOMEM when no process
// can be started.
cn_err cn_platform_start_hook(const char *path, char *const environment[], unsigned limit_s,
                              int64_t *hook);

// As cn_platform_start_hook, with size bytes of input on the hook's standard input. They must fit a
// pipe: at most 4096. Returns CN_EIO also when the pipe fails.
cn_err cn_platform_start_hook_with(const char *path, char *const environment[], unsigned limit_s,
                                   const void *input, size_t size, int64_t *hook);

// Runs this program again as a hook, with these arguments; the first is its name, NULL ends them.
// *output is the descriptor of a file with what the hook writes to standard output. The caller
// closes it once the hook has ended.
cn_err cn_platform_start_self(char *const arguments[], unsigned limit_s, int *output,
                              int64_t *hook);

// Returns the state of a hook. After any state except CN_HOOK_RUNNING the hook is no longer valid.
enum cn_hook_state cn_platform_poll_hook(int64_t hook, int *code);
