// hook_posix.c - runs a program of the site as a hook, or this program again, and ends it when its
// time is over.
//
// A waiting process stands between this program and the hook. When the time is over, it ends the
// hook and every process that the hook started and that is still in its process group, even if this
// program was killed meanwhile. It closes every inherited descriptor, so a hook never holds the
// store's lock or a port of a node that is gone.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define LOOK_MS 50
// The upper limit of the closing loop where the kernel (before 5.9) lacks close_range.
#define DESCRIPTORS 65536

// After fork in a program with threads only async-signal-safe calls are allowed (signal-safety(7)).
// The next three functions keep to that.

static void close_inherited(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) == 0)
        return;
#endif
    for (int descriptor = STDERR_FILENO + 1; descriptor < DESCRIPTORS; descriptor++)
        close(descriptor);
}

// What is run.
struct program {
    const char *path;
    char *const *argv, *const *environment;
    unsigned limit_s;
    int input, output; // descriptors of its standard input and output; -1: empty, and as this
                       // process's
};

// Replaces this process with the program, in a session of its own. Without input its standard input
// is empty; else the process has it already.
static _Noreturn void become(const struct program *program)
{
    int null = open("/dev/null", O_RDWR);

    setsid();
    if (program->input < 0)
        dup2(null, STDIN_FILENO);
    execve(program->path, program->argv, program->environment);
    _exit(127);
}

// Starts the hook, waits for it and ends what is left of it. The process exits with the hook's
// code, or dies of SIGALRM when the hook ran out of time.
static _Noreturn void stand_by(const struct program *program)
{
    siginfo_t ended = {0};
    int status = 0;
    pid_t hook;

    setsid();
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    if (program->input >= 0)
        dup2(program->input, STDIN_FILENO);
    if (program->output >= 0)
        dup2(program->output, STDOUT_FILENO);
    close_inherited();
    hook = fork();
    if (hook < 0)
        _exit(126);
    if (hook == 0)
        become(program);
    for (uint64_t spent_ms = 0; spent_ms < (uint64_t)program->limit_s * 1000; spent_ms += LOOK_MS) {
        if (waitid(P_PID, (id_t)hook, &ended, WEXITED | WNOHANG | WNOWAIT) || ended.si_pid)
            break;
        poll(NULL, 0, LOOK_MS);
    }
    kill(-hook, SIGKILL); // the hook's process group: whatever is left of it
    kill(hook, SIGKILL);  // the hook itself, in case it has not reached setsid yet
    waitpid(hook, &status, 0);
    if (!ended.si_pid)
        raise(SIGALRM);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static cn_err start(const struct program *program, int64_t *hook)
{
    pid_t child;

    if (access(program->path, X_OK))
        return CN_ENOTFOUND;
    child = fork();
    if (child < 0)
        return CN_ENOMEM;
    if (child == 0)
        stand_by(program);
    *hook = child;
    return CN_OK;
}

cn_err cn_platform_start_hook(const char *path, char *const environment[], unsigned limit_s,
                              int64_t *hook)
{
    char *const argv[] = {(char *)(uintptr_t)path, NULL};
    const struct program program = {path, argv, environment, limit_s, -1, -1};

    return start(&program, hook);
}

cn_err cn_platform_start_hook_with(const char *path, char *const environment[], unsigned limit_s,
                                   const void *input, size_t size, int64_t *hook)
{
    char *const argv[] = {(char *)(uintptr_t)path, NULL};
    struct program program = {path, argv, environment, limit_s, -1, -1};
    int ends[2];
    cn_err err = CN_EIO;

    if (pipe2(ends, O_CLOEXEC))
        return CN_EIO;
    if (write(ends[1], input, size) == (ssize_t)size) {
        program.input = ends[0];
        err = start(&program, hook);
    }
    close(ends[0]);
    close(ends[1]);
    return err;
}

cn_err cn_platform_start_self(char *const arguments[], unsigned limit_s, int *output, int64_t *hook)
{
    struct program program = {"/proc/self/exe", arguments, environ, limit_s, -1, -1};
    cn_err err;

    program.output = memfd_create("cairn", MFD_CLOEXEC);
    if (program.output < 0)
        return CN_EIO;
    err = start(&program, hook);
    if (err)
        close(program.output);
    *output = err ? -1 : program.output;
    return err;
}

enum cn_hook_state cn_platform_poll_hook(int64_t hook, int *code)
{
    int status = 0;
    pid_t pid = waitpid((pid_t)hook, &status, WNOHANG);

    *code = 0;
    if (pid == 0)
        return CN_HOOK_RUNNING;
    if (pid < 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
        return CN_HOOK_LATE;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return *code ? CN_HOOK_FAILED : CN_HOOK_DONE;
}
