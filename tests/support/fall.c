// fall.c - for LD_PRELOAD: the process dies inside of one of its calls, as by kill -9.
//
//   CAIRN_FALL=CALL:NUMBER:FILE   The process dies in call number NUMBER of this kind:
//     send      after half of the bytes were sent to a stream
//     recv      after bytes were received from a stream
//     datagram  before the datagram is sent
//     fsync     before the file is synced
//   FILE takes the stack of the call, as glibc prints it.
//
// The only state is the count of calls. Threading: any thread may call.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEPTH 40

static atomic_long calls;

static long wanted(const char *call, char file[256])
{
    const char *text = getenv("CAIRN_FALL");
    char name[16];
    long number = 0;

    if (!text || sscanf(text, "%15[a-z]:%ld:%255s", name, &number, file) != 3 ||
        strcmp(name, call) != 0)
        return 0;
    return number;
}

// Returns true in the call in which the process dies.
static int is_last(const char *call, char file[256])
{
    long number = wanted(call, file);

    return number && atomic_fetch_add(&calls, 1) + 1 == number;
}

static void fall(const char *file)
{
    void *stack[DEPTH];
    int depth = backtrace(stack, DEPTH);
    int out = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (out >= 0)
        backtrace_symbols_fd(stack, depth, out);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int is_stream(int fd)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int);
    char file[256];

    *(void **)&real = next("send");
    if (is_stream(fd) && is_last("send", file)) {
        (void)real(fd, data, size / 2, flags);
        fall(file);
    }
    if (!is_stream(fd) && is_last("datagram", file))
        fall(file);
    return real(fd, data, size, flags);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    ssize_t (*real)(int, void *, size_t, int);
    ssize_t got;
    char file[256];

    *(void **)&real = next("recv");
    got = real(fd, data, size, flags);
    if (got > 0 && is_stream(fd) && is_last("recv", file))
        fall(file);
    return got;
}

int fsync(int fd)
{
    int (*real)(int);
    char file[256];

    *(void **)&real = next("fsync");
    if (is_last("fsync", file))
        fall(file);
    return real(fd);
}
