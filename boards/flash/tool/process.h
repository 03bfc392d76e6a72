// process.h - runs other programs that handle disks and networks: debugfs, e2fsck, zstd, ssh.
//
// Arguments are passed as vectors; no shell reads them. What a program prints to standard error is
// kept for messages.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/bytes.h"

#define CN_PROCESS_JOBS 64 // programs that cn_process_run_all runs at once

struct cn_process_result {
    int code;  // exit code; 127: not found; 128 + n: ended by signal n
    bool late; // it was ended because the time was over
    struct cn_buffer out;
    struct cn_buffer errors; // ends with a 0 byte that its size does not count
};

// One of several programs that run at once.
struct cn_process_job {
    const char *const *argv; // borrowed while it runs
    int in;                  // its standard input; -1: nothing
    struct cn_process_result result;
    // Used by cn_process_run_all only.
    pid_t child; // 0: it does not run
    int ends[2]; // of the pipes for its output and its errors; -1: closed
    cn_err err;  // why it was not started, or its output not collected
    bool leads;  // it has a process group of its own
    bool undoes; // it began after an interruption, to take something back: only its time ends it
    bool done;   // it has ended, and no other runs in its place
    size_t kept; // bytes of output and of errors that are kept, the newest ones; 0: all
};

// Called when a program has ended. Returns true if argv and in of its job were changed to those of
// a program that is to run next in its place. Otherwise the result is as the program left it.
typedef bool cn_process_ended(void *context, struct cn_process_job *job);

// Runs argv until it exits, with `in` as its standard input (-1: nothing). Collects at most 64 MiB
// of its output. Returns CN_OK whatever the exit code. Deinitialise the result in any case.
cn_err cn_process_run(const char *const argv[], int in, struct cn_process_result *result);

// As cn_process_run, but a program that has not ended after limit_ms, or when this program is
// interrupted meanwhile, is killed with its process group. After limit_ms its result is late.
cn_err cn_process_run_within(const char *const argv[], int in, uint64_t limit_ms,
                             struct cn_process_result *result);
void cn_process_deinit(struct cn_process_result *result);

// Runs the programs of all jobs, at most CN_PROCESS_JOBS, until each has ended. What still runs at
// deadline_ms (of cn_platform_now_ms), or when this program is interrupted, is killed with its
// process group. Of the output of each, only the newest 32 KiB or more are kept: it may come from a
// machine that sends without end. Deinitialise all results in any case.
void cn_process_run_all(struct cn_process_job *jobs, size_t count, uint64_t deadline_ms,
                        cn_process_ended *ended, void *context);

// Starts argv. The caller closes *out, the program's standard output. The program shares the
// caller's standard error.
cn_err cn_process_start(const char *const argv[], pid_t *child, int *out);

// Waits for a started program. Returns its exit code, encoded as in cn_process_result.
int cn_process_wait(pid_t child);

// Returns the last line of the program's standard error, for a message, or that it was late; never
// NULL.
const char *cn_process_complaint(struct cn_process_result *result);

// Locks an open file or folder for this program, by flock(2). Waits a little while another has it:
// what a killed program had just started may hold its lock for a moment. Returns false with errno
// set, EWOULDBLOCK while another has it.
bool cn_process_lock(int file);

// From this call on, Ctrl-C, SIGTERM and SIGHUP do not end a step in the middle. Programs that run
// also get Ctrl-C and fail; long work in this process polls cn_process_interrupted.
void cn_process_catch_signals(void);
bool cn_process_interrupted(void);
