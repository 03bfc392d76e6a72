#include "runtime/port/platform.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "ports/posix/mapped_files.h"

uint64_t cn_platform_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t cn_platform_now_ms(void)
{
    return cn_platform_now_us() / 1000;
}

static cn_err map_descriptor(int descriptor, const char *path, size_t limit,
                             struct cn_mapping *mapping)
{
    struct stat info;
    void *data;
    cn_err err;

    err = cn_mapped_files_status(descriptor, &info);
    if (err)
        return err;
    if (!S_ISREG(info.st_mode))
        return CN_EIO;
    if ((uint64_t)info.st_size > limit)
        return CN_ERANGE;
    *mapping = (struct cn_mapping){.size = (size_t)info.st_size};
    if (info.st_size == 0)
        return CN_OK;
    data = mmap(NULL, mapping->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return cn_err_from_errno(errno);
    err = cn_mapped_files_add(data, mapping->size, path, &info);
    if (err)
        munmap(data, mapping->size);
    else
        mapping->data = data;
    return err;
}

cn_err cn_platform_map(const char *path, size_t limit, struct cn_mapping *mapping)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    cn_err err;

    if (descriptor < 0)
        return cn_err_from_errno(errno);
    err = map_descriptor(descriptor, path, limit, mapping);
    close(descriptor);
    return err;
}

// Characters of a path up to its last "/".
static int folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (int)(slash - path) + 1 : 0;
}

static int open_folder_of(const char *path)
{
    char folder[PATH_MAX];
    int length = folder_length(path);

    if (length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    snprintf(folder, sizeof(folder), "%.*s", length, path);
    return open(length ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Opens the component of name that ends at end, inside folder. Closes folder. The last component is
// the file. Returns a descriptor, or -1 with errno EINVAL for ".." and for symbolic links.
static int open_part(int folder, const char *name, const char *end)
{
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (*end ? O_DIRECTORY : O_NONBLOCK);
    char part[NAME_MAX + 1];
    int opened = -1;

    if (end - name > NAME_MAX || (end - name == 2 && !strncmp(name, "..", 2))) {
        errno = EINVAL;
    } else {
        snprintf(part, sizeof(part), "%.*s", (int)(end - name), name);
        opened = openat(folder, part, flags);
        // O_NOFOLLOW reports a symbolic link as ELOOP, together with O_DIRECTORY as ENOTDIR.
        if (opened < 0 && (errno == ELOOP || errno == ENOTDIR))
            errno = EINVAL;
    }
    close(folder);
    return opened;
}

static bool is_regular(int descriptor)
{
    struct stat info;

    return !fstat(descriptor, &info) && S_ISREG(info.st_mode);
}

cn_err cn_platform_map_beside(const char *neighbour, const char *name, size_t limit,
                              struct cn_mapping *mapping)
{
    char path[2 * PATH_MAX];
    int descriptor;
    cn_err err;

    snprintf(path, sizeof(path), "%.*s%s", folder_length(neighbour), neighbour, name);
    if (!*name || *name == '/' || name[strlen(name) - 1] == '/')
        return CN_EINVAL;
    descriptor = open_folder_of(neighbour);
    while (descriptor >= 0 && *name) {
        const char *end = strchrnul(name, '/');

        descriptor = open_part(descriptor, name, end);
        name = end + strspn(end, "/");
    }
    if (descriptor < 0)
        return errno == EINVAL ? CN_EINVAL : cn_err_from_errno(errno);
    err = is_regular(descriptor) ? map_descriptor(descriptor, path, limit, mapping) : CN_EINVAL;
    close(descriptor);
    return err;
}

cn_err cn_platform_list(const char *directory, cn_err (*visit)(void *context, const char *name),
                        void *context)
{
    DIR *opened = opendir(directory);
    const struct dirent *entry;
    cn_err err = CN_OK;

    if (!opened)
        return cn_err_from_errno(errno);
    while (!err && (errno = 0, entry = readdir(opened)))
        err = visit(context, entry->d_name);
    if (!err && errno)
        err = cn_err_from_errno(errno);
    closedir(opened);
    return err;
}

cn_err cn_platform_map_filled(size_t size, cn_platform_fill *fill, void *context,
                              struct cn_mapping *mapping)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *data = size ? mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0) : NULL;
    cn_err err;

    if (data == MAP_FAILED)
        return cn_err_from_errno(errno);
    *mapping = (struct cn_mapping){data, size};
    if (size) // large pages would also allocate the untouched bytes beside those written
        (void)madvise(data, size, MADV_NOHUGEPAGE);
    err = fill(context, data);
    if (!err && size && mprotect(data, size, PROT_READ))
        err = cn_err_from_errno(errno);
    if (err)
        cn_platform_unmap(mapping);
    return err;
}

void cn_platform_unmap(struct cn_mapping *mapping)
{
    if (mapping->data) {
        cn_mapped_files_remove(mapping->data);
        munmap((void *)mapping->data, mapping->size);
    }
    *mapping = (struct cn_mapping){0};
}

void cn_platform_forget(const struct cn_mapping *mapping)
{
    // The mapping is clean, so nothing is lost. A failure only leaves the pages resident.
    if (mapping->data)
        (void)madvise((void *)mapping->data, mapping->size, MADV_DONTNEED);
}

void cn_platform_sleep_ms(uint32_t duration_ms)
{
    struct timespec left = {.tv_sec = duration_ms / 1000,
                            .tv_nsec = (long)(duration_ms % 1000) * 1000000};

    while (nanosleep(&left, &left) && errno == EINTR)
        continue;
}

cn_err cn_platform_disk_free(const char *path, uint64_t *bytes)
{
    struct statvfs info;

    if (statvfs(path, &info))
        return cn_err_from_errno(errno);
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return CN_OK;
}

cn_err cn_platform_disk_size(const char *path, uint64_t *bytes)
{
    struct statvfs info;

    if (statvfs(path, &info))
        return cn_err_from_errno(errno);
    *bytes = (uint64_t)info.f_blocks * info.f_frsize;
    return CN_OK;
}

uint64_t cn_platform_memory_size(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

unsigned cn_platform_cpu_count(void)
{
    cpu_set_t set;
    int count;

    if (sched_getaffinity(0, sizeof(set), &set))
        return 1;
    count = CPU_COUNT(&set);
    return count > 0 ? (unsigned)count : 1;
}

void cn_platform_return_memory(void)
{
#ifdef __GLIBC__
    // Fixes the threshold, which else grows up to 32 MiB. Other C libraries have a fixed one.
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

void cn_platform_hide_memory(void)
{
    const char *allowed = getenv("CAIRN_CORE_DUMPS");

    if (!allowed || strcmp(allowed, "1") != 0)
        (void)prctl(PR_SET_DUMPABLE, 0); // fails for no other reason than a wrong argument
}

uint64_t cn_platform_peak_memory(void)
{
    // Does not use getrusage: its peak survives exec, so it may be the peak of a larger parent
    // process.
    FILE *status = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[128];

    while (status && fgets(line, sizeof(line), status))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib * 1024;
}

// Takes the descriptor.
static cn_err sync_descriptor(int directory)
{
    cn_err err = directory < 0 || fsync(directory) ? cn_err_from_errno(errno) : CN_OK;

    if (directory >= 0)
        close(directory);
    return err;
}

cn_err cn_platform_sync_directory(const char *directory)
{
    return sync_descriptor(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

cn_err cn_platform_sync_parent(const char *path)
{
    return sync_descriptor(open_folder_of(path));
}

static cn_err replace_note(const char *path, const char *text, bool published)
{
    struct stat found;
    char aside[PATH_MAX];
    bool written;
    FILE *file;
    int descriptor;

    if ((size_t)snprintf(aside, sizeof(aside), "%s.new", path) >= sizeof(aside))
        return CN_ERANGE;
    // Root could replace a device.
    if (lstat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode))
        return CN_EEXIST;
    // Others may be allowed to write in the folder: a file or link of that name is not opened.
    unlink(aside);
    descriptor = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!file) {
        cn_err err = cn_err_from_errno(errno);

        if (descriptor >= 0)
            close(descriptor);
        return err;
    }
    written = fputs(text, file) >= 0 && (!published || !fchmod(fileno(file), 0644));
    if (fclose(file) || !written || rename(aside, path)) {
        cn_err err = cn_err_from_errno(errno);

        unlink(aside);
        return err;
    }
    return CN_OK;
}

cn_err cn_platform_replace_note(const char *path, const char *text)
{
    return replace_note(path, text, false);
}

cn_err cn_platform_publish_note(const char *path, const char *text)
{
    return replace_note(path, text, true);
}
