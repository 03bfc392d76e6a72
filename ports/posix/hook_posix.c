// hook_posix.c - starts a program of the site's and ends it in time.
//
// Between this program and the hook stands a process that waits: it ends the hook, with all that
// the hook started, when its time is over, also when this program is killed meanwhile. It keeps
// nothing open of ours, so a hook never holds the lock of a store or a port of a node that is gone.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define LOOK_MS 50
#define DESCRIPTORS 65536 // closed one by one where the kernel (before 5.9) has no close_range

// After fork in a program with threads only some calls are safe (signal-safety(7)): these are.

static void close_inherited(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0) == 0)
        return;
#endif
    for (int descriptor = STDERR_FILENO + 1; descriptor < DESCRIPTORS; descriptor++)
        close(descriptor);
}

static _Noreturn void become(const char *path, char *const environment[])
{
    char *const argv[] = {(char *)(uintptr_t)path, NULL};
    int null = open("/dev/null", O_RDWR);

    setsid();
    dup2(null, STDIN_FILENO);
    execve(path, argv, environment);
    _exit(127);
}

// Ends with the hook's code, or by SIGALRM when the hook was ended.
static _Noreturn void stand_by(const char *path, char *const environment[], unsigned limit_s)
{
    siginfo_t ended = {0};
    int status = 0;
    pid_t hook;

    setsid();
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    close_inherited();
    hook = fork();
    if (hook < 0)
        _exit(126);
    if (hook == 0)
        become(path, environment);
    for (uint64_t spent_ms = 0; spent_ms < (uint64_t)limit_s * 1000; spent_ms += LOOK_MS) {
        if (waitid(P_PID, (id_t)hook, &ended, WEXITED | WNOHANG | WNOWAIT) || ended.si_pid)
            break;
        poll(NULL, 0, LOOK_MS);
    }
    kill(-hook, SIGKILL); // its session: what is left of it
    kill(hook, SIGKILL);  // should it not have come to its own session yet
    waitpid(hook, &status, 0);
    if (!ended.si_pid)
        raise(SIGALRM);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

cn_err cn_platform_start_hook(const char *path, char *const environment[], unsigned limit_s,
                              int64_t *hook)
{
    pid_t child;

    if (access(path, X_OK))
        return CN_ENOTFOUND;
    child = fork();
    if (child < 0)
        return CN_ENOMEM;
    if (child == 0)
        stand_by(path, environment, limit_s);
    *hook = child;
    return CN_OK;
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
