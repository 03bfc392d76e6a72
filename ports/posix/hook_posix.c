// hook_posix.c - starts a program of the site's and lets it go.
//
// Between this program and the hook stands a process that waits: it ends the hook, with all that
// the hook started, when its time is over. It is a grandchild, so that nobody waits for it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define LOOK_MS 50

// After fork in a program with threads only some calls are safe (signal-safety(7)): these are.

static _Noreturn void become(const char *path, char *const environment[])
{
    char *const argv[] = {(char *)(uintptr_t)path, NULL};
    int null = open("/dev/null", O_RDWR);

    dup2(null, STDIN_FILENO);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    execve(path, argv, environment);
    _exit(127);
}

static _Noreturn void stand_by(const char *path, char *const environment[], unsigned limit_s)
{
    pid_t hook;

    setsid();
    hook = fork();
    if (hook == 0)
        become(path, environment);
    for (unsigned spent_ms = 0; hook > 0 && spent_ms < limit_s * 1000; spent_ms += LOOK_MS) {
        if (waitpid(hook, NULL, WNOHANG) != 0)
            break;
        poll(NULL, 0, LOOK_MS);
    }
    kill(0, SIGKILL); // the session's group: what is left of the hook, and this process
    _exit(0);
}

cn_err cn_platform_start_hook(const char *path, char *const environment[], unsigned limit_s)
{
    pid_t child;

    if (access(path, X_OK))
        return CN_ENOTFOUND;
    child = fork();
    if (child < 0)
        return CN_ENOMEM;
    if (child == 0) {
        if (fork() == 0)
            stand_by(path, environment, limit_s);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return CN_OK;
}
