// hook_posix.c - runs a program of the site as a hook, or this program again, and ends it when its
// time is over.
//
// A waiting process stands between this program and the hook. A process whose parent ends becomes a
// child of the waiting process (PR_SET_CHILD_SUBREAPER). So when the time is over, the waiting
// process finds and ends all that the hook started, also what left the hook's session, even if this
// program was killed meanwhile. It closes every inherited descriptor, so a hook never holds the
// store's lock or a port of a node that is gone.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define LOOK_MS 50
#define END_MS 5000 // longest time for processes to end after SIGKILL; one may not be ours to end
#define CHILDREN "/proc/thread-self/children" // needs CONFIG_PROC_CHILDREN; 4.2 and later
// The upper limit of the closing loop where the kernel (before 5.9) lacks close_range.
#define DESCRIPTORS 65536

// After fork in a program with threads only async-signal-safe calls are allowed (signal-safety(7)).
// The functions down to stand_by keep to that.

// Closes descriptors from first to last at once. Returns false where the kernel cannot.
static bool close_range_of(unsigned first, unsigned last)
{
#ifdef SYS_close_range
    return first > last || syscall(SYS_close_range, first, last, 0) == 0;
#else
    return first > last;
#endif
}

void cn_platform_close_inherited(int keep)
{
    unsigned first = STDERR_FILENO + 1;
    bool keeps = keep >= (int)first;

    if ((!keeps || close_range_of(first, (unsigned)keep - 1)) &&
        close_range_of(keeps ? (unsigned)keep + 1 : first, ~0U))
        return;
    for (int descriptor = (int)first; descriptor < DESCRIPTORS; descriptor++)
        if (descriptor != keep)
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

// What the waiting process knows of a hook.
struct watched {
    pid_t hook;
    bool has_ended;
    int status; // as waitpid gives it, once the hook has ended
};

// Takes the codes of processes that have ended. When the hook is among them, ends what is left of
// its process group; the group's number is not used again before the hook's code was taken.
// Returns whether any process is left that the hook started, or the hook itself.
static bool is_left(struct watched *watched)
{
    siginfo_t ended = {0};
    while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0) {
        if (!ended.si_pid)
            return true;
        if (ended.si_pid != watched->hook) {
            waitpid(ended.si_pid, NULL, 0);
        } else {
            kill(-watched->hook, SIGKILL);
            waitpid(watched->hook, &watched->status, 0);
            watched->has_ended = true;
        }
        ended.si_pid = 0;
    }
    return false;
}

// Ends the children of this process, as many as the kernel lists at once.
static void end_children(void)
{
    char list[4096];
    int file = open(CHILDREN, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, list, sizeof(list));
    pid_t child = 0;
    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i < size; i++) { // a number that is cut off at the end has no space behind
        if (list[i] >= '0' && list[i] <= '9') {
            child = child * 10 + (list[i] - '0');
        } else if (child) {
            kill(child, SIGKILL);
            child = 0;
        }
    }
}

// Ends the hook and all that it started. What a process leaves when it ends are children in the
// next turn.
static void end_all(struct watched *watched)
{
    if (!watched->has_ended) {
        kill(-watched->hook, SIGKILL); // the hook's process group
        kill(watched->hook, SIGKILL);  // the hook itself, in case it has not reached setsid yet
    }
    for (int spent_ms = 0; spent_ms < END_MS && is_left(watched); spent_ms++) {
        end_children();
        poll(NULL, 0, 1);
    }
}

// Starts the hook, and waits until it and all that it started have ended or the time is over. The
// process exits with the hook's code, or dies of SIGALRM when the time was over.
static _Noreturn void stand_by(const struct program *program)
{
    struct watched watched = {0};
    uint64_t spent_ms = 0, limit_ms = (uint64_t)program->limit_s * 1000;

    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    if (program->input >= 0)
        dup2(program->input, STDIN_FILENO);
    if (program->output >= 0)
        dup2(program->output, STDOUT_FILENO);
    cn_platform_close_inherited(-1);
    watched.hook = fork();
    if (watched.hook < 0)
        _exit(126);
    if (watched.hook == 0)
        become(program);
    for (; is_left(&watched) && spent_ms < limit_ms; spent_ms += LOOK_MS)
        poll(NULL, 0, LOOK_MS);
    if (is_left(&watched)) {
        end_all(&watched);
        raise(SIGALRM);
    }
    _exit(WIFEXITED(watched.status) ? WEXITSTATUS(watched.status) : 128 + WTERMSIG(watched.status));
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

char *cn_platform_path_line(void)
{
    static char standard[] = "PATH=/usr/bin:/bin";

    for (char **line = environ; line && *line; line++)
        if (strncmp(*line, "PATH=", 5) == 0)
            return *line;
    return standard;
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
