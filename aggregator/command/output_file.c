#include "aggregator/command/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/command/command.h"

bool cn_output_file_fill(int file, const void *data, size_t size)
{
    const uint8_t *from = data;
    while (size) {
        ssize_t written = write(file, from, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        from += written;
        size -= (size_t)written;
    }
    return true;
}

// Creates a file and removes what lay at its path. An older file is never written to: it may be a
// link that somebody planted in a folder to which everybody can write.
static int create_file(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

// Tells whether a file may be put at this path: nothing is there, or a file. A device, which root
// could replace, and a link stay.
static bool may_replace(const char *path)
{
    struct stat found;
    if (lstat(path, &found) != 0)
        return true; // what is wrong with the path is said when the file is made
    if (S_ISREG(found.st_mode))
        return true;
    fprintf(stderr, "%s: %s; nothing is written\n", path,
            S_ISLNK(found.st_mode)   ? "is a link"
            : S_ISDIR(found.st_mode) ? "is a folder"
                                     : "is no file");
    return false;
}

int cn_output_file_write(const char *path, const struct cn_buffer *buffer)
{
    if (!may_replace(path))
        return CN_EXIT_FAILED;
    char aside[PATH_MAX];
    int length = snprintf(aside, sizeof(aside), "%s.new", path);
    int file = -1;
    if (length < 0 || (size_t)length >= sizeof(aside))
        errno = ENAMETOOLONG;
    else
        file = create_file(aside);
    bool done =
        file >= 0 && cn_output_file_fill(file, buffer->data, buffer->size) && fsync(file) == 0;
    if (file >= 0)
        done = close(file) == 0 && done;
    if (!done || rename(aside, path) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        if (file >= 0)
            unlink(aside);
        return CN_EXIT_FAILED;
    }
    return CN_EXIT_DONE;
}
