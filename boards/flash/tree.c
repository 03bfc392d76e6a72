#include "boards/flash/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boards/flash/talk.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define STATUS_MAX ((size_t)64 << 20)

// path is absolute on the board.
static int open_in(int root, const char *path, int flags, unsigned mode)
{
    struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC, .mode = mode, .resolve = RESOLVE_IN_ROOT};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

// The folder that holds path, made when it is missing; *name is the last part of path.
static int open_folder(int root, const char *path, const char **name)
{
    int folder = open_in(root, "/", O_RDONLY | O_DIRECTORY, 0);

    *name = path + 1;
    for (const char *at = strchr(path + 1, '/'); at && folder >= 0; at = strchr(at + 1, '/')) {
        char part[CN_PAYLOAD_TARGET], part_name[CN_PAYLOAD_TARGET];
        int next;

        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        snprintf(part_name, sizeof(part_name), "%.*s", (int)(at - *name), *name);
        next = open_in(root, part, O_RDONLY | O_DIRECTORY, 0);
        if (next < 0 && errno == ENOENT && mkdirat(folder, part_name, 0755) == 0)
            next = open_in(root, part, O_RDONLY | O_DIRECTORY, 0);
        close(folder);
        folder = next;
        *name = at + 1;
    }
    return folder;
}

static bool copy(const struct cn_payload_file *file, int to)
{
    struct cn_mapping content;
    bool good = cn_platform_map(file->source, SIZE_MAX, &content) == CN_OK;

    for (size_t at = 0; good && at < content.size;) {
        ssize_t put = write(to, content.data + at, content.size - at);

        if (put < 0 && errno == EINTR)
            continue;
        good = put > 0;
        at += put > 0 ? (size_t)put : 0;
    }
    if (good)
        cn_platform_unmap(&content);
    return good;
}

static bool is_there(int root, const struct cn_payload_file *file)
{
    int there = open_in(root, file->target, O_RDONLY, 0);
    uint8_t chunk[65536], digest[CN_DIGEST_SIZE];
    struct cn_sha256 sha;
    ssize_t got = -1;

    cn_sha256_init(&sha);
    while (there >= 0 && (got = read(there, chunk, sizeof(chunk))) > 0)
        cn_sha256_add(&sha, chunk, (size_t)got);
    cn_sha256_finish(&sha, digest);
    cn_crypto_wipe(chunk, sizeof(chunk));
    if (there >= 0)
        close(there);
    return got == 0 && memcmp(digest, file->digest, CN_DIGEST_SIZE) == 0;
}

static bool place(int root, const struct cn_payload_file *file)
{
    const char *name;
    int folder = open_folder(root, file->target, &name);
    int to = -1;
    bool good;

    if (folder >= 0 && (unlinkat(folder, name, 0) == 0 || errno == ENOENT))
        to = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    file->mode & 0600);
    good = to >= 0 && copy(file, to) && fchmod(to, file->mode) == 0 &&
           (geteuid() != 0 || fchown(to, 0, 0) == 0) && fsync(to) == 0;
    if (to >= 0)
        close(to);
    if (folder >= 0)
        close(folder);
    return good && is_there(root, file);
}

static bool enable(int root)
{
    const char *name;
    int folder = open_folder(root, CN_PAYLOAD_UNIT_LINK, &name);
    bool good = folder >= 0 && (symlinkat(CN_PAYLOAD_UNIT, folder, name) == 0 || errno == EEXIST);

    if (folder >= 0)
        close(folder);
    return good;
}

int cn_tree_write(const char *path, const struct cn_payload *payload)
{
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = root >= 0;

    for (size_t i = 0; i < payload->count && good; i++) {
        good = place(root, &payload->files[i]);
        if (!good)
            cn_talk_error(errno == EACCES ? "the tree is root's: run this with sudo" : NULL,
                          "%s%s cannot be written: %s", path, payload->files[i].target,
                          strerror(errno));
    }
    if (good && !enable(root)) {
        cn_talk_error(NULL, "%s: the first-boot unit cannot be enabled: %s", path, strerror(errno));
        good = false;
    }
    if (root >= 0)
        close(root);
    if (good)
        cn_talk_step("verified", "%zu files are read back and compared", payload->count);
    return good ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

static bool exists(int root, const char *path)
{
    int file = open_in(root, path, O_PATH, 0);

    if (file >= 0)
        close(file);
    return file >= 0;
}

// The architecture of the tree's libc6, or "".
static void find_architecture(int root, char *architecture, size_t size)
{
    int file = open_in(root, "/var/lib/dpkg/status", O_RDONLY, 0);
    off_t length = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    char *text = length > 0 && length < (off_t)STATUS_MAX ? calloc(1, (size_t)length + 1) : NULL;
    const char *libc, *at, *end;

    architecture[0] = '\0';
    if (text && pread(file, text, (size_t)length, 0) == (ssize_t)length) {
        libc = strstr(text, "Package: libc6\n");
        at = libc ? strstr(libc, "\nArchitecture: ") : NULL;
        end = libc ? strstr(libc, "\n\n") : NULL;
        if (at && (!end || at < end))
            snprintf(architecture, size, "%.*s", (int)strcspn(at + 15, "\n"), at + 15);
    }
    free(text);
    if (file >= 0)
        close(file);
}

int cn_tree_check(const char *path, const char *architecture, bool replace)
{
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = CN_EXIT_FAILED;
    char found[16];

    if (root < 0) {
        cn_talk_error(NULL, "%s: %s", path, strerror(errno));
        return code;
    }
    find_architecture(root, found, sizeof(found));
    if (!found[0])
        cn_talk_error("the root must hold a Debian or Ubuntu system",
                      "%s has no package database with libc6", path);
    else if (strcmp(architecture, "all") != 0 && strcmp(architecture, found) != 0)
        cn_talk_error(NULL, "%s holds a system for %s, the packages are for %s", path, found,
                      architecture);
    else if (!replace && (exists(root, CN_PAYLOAD_ETC "/node.key") ||
                          exists(root, CN_PAYLOAD_ETC "/node.yaml")))
        cn_talk_error("--replace writes over it", "%s holds the files of a board already", path);
    else
        code = CN_EXIT_DONE;
    close(root);
    return code;
}
