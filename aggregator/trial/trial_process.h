// trial_process.h - the programs that a trial starts, as processes that end with it.
//
// Each process has a process group of its own. So Ctrl-C reaches only the trial, which then ends
// its processes in order. If the trial is killed, the kernel ends them. Threading: one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/error.h"

#define CN_TRIAL_NAME_SIZE 32

struct cn_trial_process {
    char name[CN_TRIAL_NAME_SIZE];
    pid_t pid;       // 0: the process was not started, or has ended
    int code;        // exit code, or 128 + the number of the signal that ended the process
    long log_offset; // size of the log file before the process was started
};

// Starts argv[0], a path, in a folder. Its output is appended to the file log, a path as seen from
// folder. With output above 0, its standard output goes to that descriptor instead. Returns CN_EIO;
// errno says why.
cn_err cn_trial_process_start(struct cn_trial_process *process, const char *folder,
                              char *const argv[], const char *log, int output);

// Returns whether a process that was started has ended, and sets its exit code.
bool cn_trial_process_ended(struct cn_trial_process *process);

// Looks for a program beside this one, then in PATH. Sets path, or returns false when there is
// none.
bool cn_trial_process_find(const char *program, char *path, size_t size);

// Asks all processes to end, and kills those that have not ended after limit_ms.
void cn_trial_process_end(struct cn_trial_process *processes, size_t count, uint64_t limit_ms);

// Counts the warnings and errors in the log file of a program. Sets newest to the newest of them,
// without its time.
#define CN_TRIAL_LINE_SIZE 320
uint64_t cn_trial_process_warnings(const char *log, char newest[CN_TRIAL_LINE_SIZE]);

// Prints lines of a log file from offset on to standard error, each after "  | ": at most 30 from
// the program's first error on, or else the last ten. Returns whether the lines from the
// first of them on name the command reload.
bool cn_trial_process_tell(const char *log, long offset);
