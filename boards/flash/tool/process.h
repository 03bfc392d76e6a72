// process.h - runs other programs that handle disks and networks: debugfs, e2fsck, zstd, ssh.
//
// Arguments are passed as vectors; no shell reads them. What a program prints to standard error is
// kept for messages.
#pragma once

#include <sys/types.h>

#include "runtime/base/bytes.h"

struct cn_process_result {
    int code; // exit code; 127: not found; 128 + n: ended by signal n
    struct cn_buffer out;
    struct cn_buffer errors; // ends with a 0 byte that its size does not count
};

// Runs argv until it exits, with `in` as its standard input (-1: nothing). Collects at most 64 MiB
// of its output. Returns CN_OK whatever the exit code. Deinitialise the result in any case.
cn_err cn_process_run(const char *const argv[], int in, struct cn_process_result *result);
void cn_process_deinit(struct cn_process_result *result);

// Starts argv. The caller closes *out, the program's standard output. The program shares the
// caller's standard error.
cn_err cn_process_start(const char *const argv[], pid_t *child, int *out);

// Waits for a started program. Returns its exit code, encoded as in cn_process_result.
int cn_process_wait(pid_t child);

// Returns the last line of the program's standard error, for a message; never NULL.
const char *cn_process_complaint(struct cn_process_result *result);

// From this call on, Ctrl-C, SIGTERM and SIGHUP do not end a step in the middle. Programs that run
// also get Ctrl-C and fail; long work in this process polls cn_process_interrupted.
void cn_process_catch_signals(void);
bool cn_process_interrupted(void);
