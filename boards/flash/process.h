// process.h - runs the programs that know disks and networks better: debugfs, e2fsck, zstd, ssh.
//
// Arguments are vectors: no shell reads them. A program's own words are kept for messages.
#pragma once

#include <sys/types.h>

#include "runtime/base/bytes.h"

struct cn_process_result {
    int code; // exit code; 127: not found; 128 + n: ended by signal n
    struct cn_buffer out;
    struct cn_buffer errors; // ends with a 0 that its size does not count
};

// Runs argv to its end with in as its standard input (-1: nothing). What it writes is collected, at
// most 64 MiB. CN_OK whatever its exit code; deinit the result in any case.
cn_err cn_process_run(const char *const argv[], int in, struct cn_process_result *result);
void cn_process_deinit(struct cn_process_result *result);

// Starts argv with its standard output in *out, to be closed by the caller; its complaints go to
// the caller's standard error.
cn_err cn_process_start(const char *const argv[], pid_t *child, int *out);

// Its exit code, as in the result above.
int cn_process_wait(pid_t child);

// The last line of what a program complained, for a message; never NULL.
const char *cn_process_complaint(struct cn_process_result *result);

// From here on Ctrl-C, SIGTERM and SIGHUP end no step in the middle: the programs that run get
// Ctrl-C, too, and fail, and long work of our own asks cn_process_interrupted.
void cn_process_catch_signals(void);
bool cn_process_interrupted(void);
