// node_gpus.c - the parent of "cairn-node run" on a board with several GPUs.
//
// For its children the parent is the service manager (sd_notify(3)): it receives their signs of
// life and sends its own to the manager that started it.
#include "runtime/command/node_gpus.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define POLL_MS 50
#define FEED_MS 1000    // shortest time between two signs of life of this process
#define SILENT_MS 10000 // silence of a child after which the log says so
#define NOTES_MAX 16    // most notes (messages of sd_notify) of a child that are read at a time
#define AGAIN_MS 1000   // pause before a child is started again, doubled each time
#define AGAIN_MOST_MS 30000
#define STEADY_MS 10000 // life of a child after which the pause is AGAIN_MS again

struct child {
    pid_t pid;                   // 0: the child does not run
    bool done;                   // it ended with CN_EXIT_DONE
    uint64_t begun_ms, again_ms; // clock: its last start, its next start
    uint64_t pause_ms;           // pause before its next start; 0: it has not failed yet
    int ear;                     // socket for the child's notes to its service manager; -1: none
    bool heard;                  // the child was heard since the watchdog was last fed
    uint64_t heard_ms;           // clock: its last sign of life
    bool silence_told;           // the log says that the child is silent
};

struct family {
    struct child children[CN_GROUP_MAX];
    uint32_t count;
    int (*run)(void *context, uint32_t place);
    void (*name)(void *context, uint32_t place, char *text, uint32_t size);
    void *context;
    int failed;      // exit code of a child for which all children are ended; 0: none
    uint64_t fed_ms; // clock: when the watchdog was last fed
};

// --- the watchdog ---

// Writes the name of a child's socket. The abstract namespace needs no file.
static void ear_name(pid_t parent, uint32_t place, char name[64])
{
    snprintf(name, 64, "@cairn-node-%d-%u", (int)parent, place);
}

static void open_ear(struct child *child, uint32_t place)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int yes = 1; // the kernel adds the sender's process to each note
    char name[64];
    socklen_t size;

    ear_name(getpid(), place, name);
    size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    child->ear = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (child->ear >= 0 && !setsockopt(child->ear, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) &&
        !bind(child->ear, (const struct sockaddr *)(const void *)&address, size))
        return;
    cn_log(CN_LOG_WARN, "node", "the watchdog does not cover GPU member %u: %s", place,
           strerror(errno));
    if (child->ear >= 0)
        close(child->ear);
    child->ear = -1;
}

// Reads a note. Returns false when there is none. Any program of this machine can send notes, so
// *is_sign is true only for a note of this child.
static bool hear(const struct child *child, bool *is_sign)
{
    union {
        struct cmsghdr first;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    char note[256];
    struct iovec part = {.iov_base = note, .iov_len = sizeof(note)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t size = child->ear < 0 ? -1 : recvmsg(child->ear, &message, 0);
    const struct cmsghdr *said = size < 0 ? NULL : CMSG_FIRSTHDR(&message);
    struct ucred sender = {0};

    if (said && said->cmsg_level == SOL_SOCKET && said->cmsg_type == SCM_CREDENTIALS)
        memcpy(&sender, CMSG_DATA(said), sizeof(sender));
    *is_sign = child->pid && sender.pid == child->pid;
    return size >= 0;
}

static void listen_to(struct family *family, uint32_t place, uint64_t now_ms)
{
    struct child *child = &family->children[place];
    char name[2 * CN_NAME_SIZE];
    bool is_sign;

    for (int i = 0; i < NOTES_MAX && hear(child, &is_sign); i++) {
        if (!is_sign)
            continue;
        child->heard = true;
        child->heard_ms = now_ms;
        child->silence_told = false;
    }
    if (!child->pid || child->ear < 0)
        child->heard = true; // the child cannot be heard, so nothing waits for it
    if (child->heard || child->silence_told || now_ms - child->heard_ms < SILENT_MS)
        return;
    child->silence_told = true;
    family->name(family->context, place, name, sizeof(name));
    cn_log(CN_LOG_ERROR, "node", "%s stands still: the watchdog is not fed until it goes on", name);
}

// Feeds the watchdog of this process's manager once every child was heard since the last time.
static void feed_watchdog(struct family *family, uint64_t now_ms)
{
    bool all = true;

    for (uint32_t i = 0; i < family->count; i++) {
        listen_to(family, i, now_ms);
        all &= family->children[i].heard;
    }
    if (!all || now_ms - family->fed_ms < FEED_MS)
        return;
    cn_platform_notify("WATCHDOG=1");
    family->fed_ms = now_ms;
    for (uint32_t i = 0; i < family->count; i++)
        family->children[i].heard = false;
}

// --- the children ---

// Makes the child send its notes to the parent, because a manager listens to one process only. Ends
// the child when the parent ends.
static void leave_parent(pid_t parent, uint32_t place)
{
    char name[64];

    ear_name(parent, place, name);
    setenv("NOTIFY_SOCKET", name, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) // the parent ended before prctl
        raise(SIGTERM);
}

static void start(struct family *family, uint32_t place, uint64_t now_ms)
{
    struct child *child = &family->children[place];
    char name[2 * CN_NAME_SIZE];
    pid_t parent = getpid();

    family->name(family->context, place, name, sizeof(name));
    child->begun_ms = child->heard_ms = now_ms;
    child->pid = fork();
    if (child->pid < 0) {
        cn_log(CN_LOG_ERROR, "node", "%s cannot be started: %s", name, strerror(errno));
        child->pid = 0;
        child->again_ms = now_ms + AGAIN_MOST_MS;
        return;
    }
    if (child->pid)
        return;
    leave_parent(parent, place);
    cn_log_set_name(name);
    exit(family->run(family->context, place));
}

static void say_end(const struct family *family, uint32_t place, int status)
{
    const struct child *child = &family->children[place];
    char name[2 * CN_NAME_SIZE];

    family->name(family->context, place, name, sizeof(name));
    if (WIFSIGNALED(status))
        cn_log(CN_LOG_WARN, "node", "%s was killed by signal %d: started again in %" PRIu64 " s",
               name, WTERMSIG(status), child->pause_ms / 1000);
    else
        cn_log(CN_LOG_WARN, "node", "%s ended with %d: started again in %" PRIu64 " s", name,
               WEXITSTATUS(status), child->pause_ms / 1000);
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
    bool ending = false;

    cn_platform_notify("READY=1");
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
        feed_watchdog(family, now_ms);
        poll(NULL, 0, POLL_MS);
    }
}

int cn_command_run_each(uint32_t count, int (*run)(void *context, uint32_t place),
                        void (*name)(void *context, uint32_t place, char *text, uint32_t size),
                        void *context)
{
    struct family family = {.count = count, .run = run, .name = name, .context = context};
    int code;

    for (uint32_t i = 0; i < count; i++)
        open_ear(&family.children[i], i);
    code = look_after(&family, cn_command_catch_signals());
    for (uint32_t i = 0; i < count; i++)
        if (family.children[i].ear >= 0)
            close(family.children[i].ear);
    return code;
}
