// witness.c - loaded before libc into the programs of a guest (LD_PRELOAD), for powerloss.py.
//
// When the node says that its update of a round was accepted, the round's number is written at
// once, past the page cache, to the end of the disk whose writes are logged: what comes later in
// the log comes after the promise. OMIT=directory leaves out the syncs of folders, OMIT=all every
// sync: the explorer has to find what that loses.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096

static void witness(uint32_t round)
{
    static _Alignas(BLOCK) char block[BLOCK];
    const char *disk = getenv("WITNESS_DISK"), *offset = getenv("WITNESS_AT");
    int file = disk && offset ? open(disk, O_WRONLY | O_DIRECT | O_CLOEXEC) : -1;

    memcpy(block, "cairn-promise", 13);
    memcpy(block + 16, &round, sizeof(round));
    if (file < 0 || pwrite(file, block, sizeof(block), atoll(offset)) != BLOCK)
        abort(); // the guest's log will tell
    close(file);
}

ssize_t write(int file, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    char line[256] = "";
    const char *said;
    unsigned round, bytes;

    if (!real)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (file == STDERR_FILENO) {
        memcpy(line, data, size < sizeof(line) ? size : sizeof(line) - 1);
        said = strstr(line, "info "); // behind the time, or the priority of journald
        if (said &&
            sscanf(said, "info epoch: round %u: update of %u bytes acc", &round, &bytes) == 2 &&
            strstr(line, "accepted"))
            witness(round);
    }
    return real(file, data, size);
}

static int omitted(int file)
{
    const char *omit = getenv("OMIT");
    struct stat info;

    return omit && (strcmp(omit, "all") == 0 || (strcmp(omit, "directory") == 0 &&
                                                 fstat(file, &info) == 0 && S_ISDIR(info.st_mode)));
}

int fsync(int file)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

    return omitted(file) ? 0 : real(file);
}

int fdatasync(int file)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");

    return omitted(file) ? 0 : real(file);
}
