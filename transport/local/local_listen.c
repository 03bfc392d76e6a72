#include "transport/local/local_listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 16
#define FIRST_HANDED 3 // descriptor of the first socket that a service manager hands over
#define MOST_HANDED 16

typedef int address_call(int descriptor, const struct sockaddr *address, socklen_t size);

// Calls bind or connect with the name alone, inside the directory. Sets errno.
static int call_inside(address_call *call, const char *directory, const char *name, int descriptor)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(name) >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, name, strlen(name));
    int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (back < 0)
        return -1;
    int result = chdir(directory), reason = errno;
    if (result == 0) {
        result = call(descriptor, (const struct sockaddr *)&address, sizeof(address));
        reason = errno;
        if (fchdir(back) != 0) {
            reason = errno;
            result = -1;
        }
    }
    close(back);
    errno = reason;
    return result;
}

static int open_socket(int flags)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
}

void cn_local_unlisten(const char *directory, const char *name)
{
    struct stat info;
    int place = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place < 0)
        return;
    if (fstatat(place, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode))
        (void)unlinkat(place, name, 0);
    close(place);
}

cn_err cn_local_listen(const char *directory, const char *name, int *descriptor)
{
    cn_local_unlisten(directory, name);
    *descriptor = open_socket(SOCK_NONBLOCK);
    if (*descriptor < 0)
        return cn_err_from_errno(errno);
    mode_t mask = umask(0177);
    int result = call_inside(bind, directory, name, *descriptor);
    int reason = errno;
    umask(mask);
    if (result == 0 && listen(*descriptor, BACKLOG) == 0)
        return CN_OK;
    if (result == 0)
        reason = errno;
    close(*descriptor);
    *descriptor = -1;
    errno = reason;
    return reason == EADDRINUSE ? CN_EEXIST : cn_err_from_errno(reason);
}

cn_err cn_local_connect(const char *directory, const char *name, int *descriptor)
{
    *descriptor = open_socket(0);
    if (*descriptor < 0)
        return cn_err_from_errno(errno);
    if (call_inside(connect, directory, name, *descriptor) == 0)
        return CN_OK;
    int reason = errno;
    close(*descriptor);
    *descriptor = -1;
    if (reason == ENOENT || reason == ENOTDIR || reason == ECONNREFUSED)
        return CN_ENOTFOUND;
    return reason == EACCES || reason == EPERM ? CN_EAUTH : cn_err_from_errno(reason);
}

// --- sockets of the service manager ---

// Reads a small number from the environment. Returns -1 when there is none.
static long read_number(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || !*text)
        return -1;
    long number = strtol(text, &end, 10);
    return *end || number < 0 ? -1 : number;
}

static int is_listening(int descriptor)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address), value_size = sizeof(int);
    int listens = 0, type = 0;
    if (getsockname(descriptor, (struct sockaddr *)&address, &size) != 0 ||
        address.ss_family != AF_UNIX)
        return 0;
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &value_size) != 0 || type != SOCK_STREAM)
        return 0;
    value_size = sizeof(int);
    return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &value_size) == 0 && listens;
}

// Copies the name with this number from "a:b:c". It is empty when the list is shorter.
static void copy_name(const char *names, long number, char name[CN_LOCAL_NAME_SIZE])
{
    for (; names && number > 0; number--) {
        names = strchr(names, ':');
        names = names ? names + 1 : NULL;
    }
    int length = names ? (int)strcspn(names, ":") : 0;
    snprintf(name, CN_LOCAL_NAME_SIZE, "%.*s", length, names ? names : "");
}

size_t cn_local_take_handed(struct cn_local_handed *handed, size_t most)
{
    size_t taken = 0;
    const char *names = getenv("LISTEN_FDNAMES");
    long count = read_number("LISTEN_PID") == (long)getpid() ? read_number("LISTEN_FDS") : 0;
    for (long i = 0; i < count && i < MOST_HANDED; i++) {
        int descriptor = FIRST_HANDED + (int)i;
        int flags = fcntl(descriptor, F_GETFL);
        if (flags < 0)
            continue;
        if (taken == most || !is_listening(descriptor) ||
            fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0 ||
            fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
            close(descriptor);
            continue;
        }
        copy_name(names, i, handed[taken].name);
        handed[taken++].descriptor = descriptor;
    }
    unsetenv("LISTEN_PID"); // processes that this one starts have no such sockets
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return taken;
}

void cn_local_drop_handed(struct cn_local_handed *handed)
{
    if (handed->descriptor >= 0)
        close(handed->descriptor);
    handed->descriptor = -1;
}
