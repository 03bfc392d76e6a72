// node_gpus.c - the parent of "cairn-node run" on a board with several GPUs.
#include "runtime/command/node_gpus.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define POLL_MS 50
#define NOTIFY_MS 1000
#define AGAIN_MS 1000 // before a child is started again, the first time
#define AGAIN_MOST_MS 30000
#define STEADY_MS 10000 // a child that lived so long is started again as the first time

struct child {
    pid_t pid; // 0: it does not run
    bool done;
    uint64_t begun_ms, again_ms;
    uint64_t pause_ms;
};

struct family {
    struct child children[CN_GROUP_MAX];
    uint32_t count;
    int (*run)(void *context, uint32_t place);
    void (*name)(void *context, uint32_t place, char *text, uint32_t size);
    void *context;
    int failed; // exit code that ends all; 0: none
};

// Of the parent only: a manager hears one process.
static void leave_parent(pid_t parent)
{
    unsetenv("NOTIFY_SOCKET");
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) // it was killed before that
        raise(SIGTERM);
}

static void start(struct family *family, uint32_t place, uint64_t now_ms)
{
    struct child *child = &family->children[place];
    char name[2 * CN_NAME_SIZE];
    pid_t parent = getpid();

    family->name(family->context, place, name, sizeof(name));
    child->begun_ms = now_ms;
    child->pid = fork();
    if (child->pid < 0) {
        cn_log(CN_LOG_ERROR, "node", "%s cannot be started: no process is left", name);
        child->pid = 0;
        child->again_ms = now_ms + AGAIN_MOST_MS;
        return;
    }
    if (child->pid)
        return;
    leave_parent(parent);
    cn_log_set_name(name);
    exit(family->run(family->context, place));
}

static void say_end(const struct family *family, uint32_t place, int status)
{
    const struct child *child = &family->children[place];
    char name[2 * CN_NAME_SIZE];

    family->name(family->context, place, name, sizeof(name));
    if (WIFSIGNALED(status))
        cn_log(CN_LOG_WARN, "node", "%s was killed by signal %d: started again in %llu s", name,
               WTERMSIG(status), (unsigned long long)(child->pause_ms / 1000));
    else
        cn_log(CN_LOG_WARN, "node", "%s ended with %d: started again in %llu s", name,
               WEXITSTATUS(status), (unsigned long long)(child->pause_ms / 1000));
}

static void take_end(struct family *family, uint32_t place, int status, bool stopping,
                     uint64_t now_ms)
{
    struct child *child = &family->children[place];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    child->pid = 0;
    child->done = code == CN_EXIT_DONE;
    if (child->done || stopping)
        return;
    if (code >= 0 && code != CN_EXIT_FAILED && code != CN_EXIT_INTERRUPTED) {
        family->failed = code;
        return;
    }
    if (!child->pause_ms || now_ms - child->begun_ms >= STEADY_MS)
        child->pause_ms = AGAIN_MS;
    else
        child->pause_ms = 2 * child->pause_ms < AGAIN_MOST_MS ? 2 * child->pause_ms : AGAIN_MOST_MS;
    child->again_ms = now_ms + child->pause_ms;
    say_end(family, place, status);
}

static void collect(struct family *family, bool stopping, uint64_t now_ms)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < family->count; i++)
            if (family->children[i].pid == pid)
                take_end(family, i, status, stopping, now_ms);
}

static uint32_t count_running(const struct family *family, uint32_t *done)
{
    uint32_t running = 0;

    *done = 0;
    for (uint32_t i = 0; i < family->count; i++) {
        running += family->children[i].pid != 0;
        *done += family->children[i].done;
    }
    return running;
}

static void end_all(const struct family *family)
{
    for (uint32_t i = 0; i < family->count; i++)
        if (family->children[i].pid)
            kill(family->children[i].pid, SIGTERM);
}

static int look_after(struct family *family, const atomic_bool *stop)
{
    uint64_t notified_ms = 0;
    bool ending = false;

    for (;;) {
        uint64_t now_ms = cn_platform_now_ms();
        uint32_t running, done;

        collect(family, ending, now_ms);
        if (!ending && (atomic_load(stop) || family->failed)) {
            ending = true;
            end_all(family);
        }
        for (uint32_t i = 0; !ending && i < family->count; i++) {
            const struct child *child = &family->children[i];

            if (!child->pid && !child->done && now_ms >= child->again_ms)
                start(family, i, now_ms);
        }
        running = count_running(family, &done);
        if (done == family->count)
            return CN_EXIT_DONE;
        if (ending && !running)
            return family->failed ? family->failed : CN_EXIT_INTERRUPTED;
        if (now_ms - notified_ms >= NOTIFY_MS) {
            cn_platform_notify(notified_ms ? "WATCHDOG=1" : "READY=1");
            notified_ms = now_ms;
        }
        poll(NULL, 0, POLL_MS);
    }
}

int cn_command_run_each(uint32_t count, int (*run)(void *context, uint32_t place),
                        void (*name)(void *context, uint32_t place, char *text, uint32_t size),
                        void *context)
{
    struct family family = {.count = count, .run = run, .name = name, .context = context};

    return look_after(&family, cn_command_catch_signals());
}
