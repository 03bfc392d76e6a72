#include "boards/flash/tool/workspace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "cairn-flash-"

static const char *const places[] = {"/dev/shm", "/tmp"};

// Wipes the folders of this user's processes that ended without cleaning up, for example after kill
// -9. The process id is part of the folder's name.
static void wipe_stale(const char *place)
{
    DIR *folder = opendir(place);
    const struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        struct cn_workspace stale;
        struct stat info;
        int pid = 0, end = 0;

        if (sscanf(entry->d_name, PREFIX "%d-%*6[A-Za-z0-9]%n", &pid, &end) != 1 || end == 0 ||
            entry->d_name[end] || pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH)
            continue;
        snprintf(stale.path, sizeof(stale.path), "%s/%.200s", place, entry->d_name);
        if (lstat(stale.path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid())
            cn_workspace_close(&stale);
    }
    if (folder)
        closedir(folder);
}

cn_err cn_workspace_open(struct cn_workspace *space)
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        wipe_stale(places[i]);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(space->path, sizeof(space->path), "%s/" PREFIX "%d-XXXXXX", places[i],
                 (int)getpid());
        if (mkdtemp(space->path))
            return CN_OK;
    }
    space->path[0] = '\0';
    return cn_err_from_errno(errno);
}

// Overwrites a file with zeros and removes it.
static void wipe(const char *path)
{
    static const char zeros[4096];
    struct stat info;
    int file = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
        for (off_t at = 0; at < info.st_size; at += (off_t)sizeof(zeros))
            if (pwrite(file, zeros, sizeof(zeros), at) < 0)
                break;
        fsync(file);
    }
    if (file >= 0)
        close(file);
    unlink(path);
}

void cn_workspace_close(struct cn_workspace *space)
{
    DIR *folder = space->path[0] ? opendir(space->path) : NULL;
    const struct dirent *entry;
    char path[CN_WORKSPACE_PATH + 256];

    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", space->path, entry->d_name);
        wipe(path);
    }
    if (folder)
        closedir(folder);
    if (space->path[0])
        rmdir(space->path);
    space->path[0] = '\0';
}
