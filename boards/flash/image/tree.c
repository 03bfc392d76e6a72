#include "boards/flash/image/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "boards/flash/image/l4t_release.h"
#include "boards/flash/image/system.h"
#include "boards/flash/tool/console.h"
#include "runtime/command/command.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define STATUS_MAX ((size_t)64 << 20)

// Opens path, which is absolute on the board, inside root.
static int open_in(int root, const char *path, int flags, unsigned mode)
{
    struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC, .mode = mode, .resolve = RESOLVE_IN_ROOT};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

// Opens the folder that holds path, making it when it is missing. Sets *name to the last component
// of path.
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

// Writes the temporary name that a file has until all files are written.
static void name_aside(const char *name, char aside[CN_PAYLOAD_TARGET + 8])
{
    snprintf(aside, CN_PAYLOAD_TARGET + 8, "%s.new", name);
}

static bool is_there(int folder, const char *name, const struct cn_payload_file *file)
{
    int there = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
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

static bool is_folder(int folder, const char *name)
{
    struct stat info;

    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode))
        return false;
    errno = EISDIR;
    return true;
}

static bool write_aside(int root, const struct cn_payload_file *file)
{
    char aside[CN_PAYLOAD_TARGET + 8];
    const char *name;
    int folder = open_folder(root, file->target, &name);
    int to = -1;
    bool good;

    name_aside(name, aside);
    if (folder >= 0 && !is_folder(folder, name) &&
        (unlinkat(folder, aside, 0) == 0 || errno == ENOENT))
        to = openat(folder, aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    file->mode & 0600);
    good = to >= 0 && copy(file, to) && fchmod(to, file->mode) == 0 &&
           (geteuid() != 0 || fchown(to, 0, 0) == 0) && fsync(to) == 0 &&
           is_there(folder, aside, file);
    if (to >= 0)
        close(to);
    if (folder >= 0)
        close(folder);
    return good;
}

static bool put_in_place(int root, const struct cn_payload_file *file)
{
    char aside[CN_PAYLOAD_TARGET + 8];
    const char *name;
    int folder = open_folder(root, file->target, &name);
    bool good;

    name_aside(name, aside);
    good = folder >= 0 && renameat(folder, aside, folder, name) == 0 && fsync(folder) == 0;
    if (folder >= 0)
        close(folder);
    return good;
}

// Makes the link that enables the unit. Sets *made when the link was not there before.
static bool enable(int root, bool *made)
{
    const char *name;
    int folder = open_folder(root, CN_PAYLOAD_UNIT_LINK, &name);
    bool good;

    *made = folder >= 0 && symlinkat(CN_PAYLOAD_UNIT, folder, name) == 0;
    good = *made || (folder >= 0 && errno == EEXIST);
    if (folder >= 0)
        close(folder);
    return good;
}

// Records how far a delivery has come.
struct written {
    size_t aside; // the number of *.new files that were begun
    bool link;    // the unit's link is new
};

// Removes the *.new files and the unit's link if it is new. Folders and files already in their
// places stay.
static void take_back(int root, const struct cn_payload *payload, const struct written *written)
{
    for (size_t i = 0; i < written->aside + written->link; i++) {
        bool link = i == written->aside;
        const char *target = link ? CN_PAYLOAD_UNIT_LINK : payload->files[i].target;
        char aside[CN_PAYLOAD_TARGET + 8];
        const char *name;
        int folder = open_folder(root, target, &name);

        if (folder < 0)
            continue;
        name_aside(name, aside);
        unlinkat(folder, link ? name : aside, 0);
        close(folder);
    }
}

// Writes all files under their *.new names, then renames each to its place, the key last. A failure
// in the first phase leaves the board's own files as they were.
static bool write_files(int root, const char *path, const struct cn_payload *payload,
                        struct written *written)
{
    for (size_t i = 0; i < 2 * payload->count; i++) {
        const struct cn_payload_file *file = &payload->files[i % payload->count];
        bool aside = i < payload->count;

        if (i == payload->count && !enable(root, &written->link)) {
            cn_console_error(NULL, "%s: the first-boot unit cannot be enabled: %s", path,
                             strerror(errno));
            return false;
        }
        written->aside += aside;
        if (aside ? write_aside(root, file) : put_in_place(root, file))
            continue;
        cn_console_error(errno == EACCES ? "the tree is root's: run this with sudo" : NULL,
                         "%s%s cannot be written: %s", path, file->target, strerror(errno));
        return false;
    }
    return true;
}

int cn_tree_write(const char *path, const struct cn_payload *payload)
{
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct written written = {0};
    bool good = root >= 0 && write_files(root, path, payload, &written);

    if (!good && root >= 0) {
        take_back(root, payload, &written);
        cn_console_step("removed", "what was written to %s is removed again", path);
    }
    if (root >= 0)
        close(root);
    if (good)
        cn_console_step("verified", "%zu files are read back and compared", payload->count);
    return good ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

static bool exists(int root, const char *path)
{
    int file = open_in(root, path, O_PATH, 0);

    if (file >= 0)
        close(file);
    return file >= 0;
}

// Reads a text file of the board; NULL without one. O_NONBLOCK and the type check keep a fifo or
// device in an untrusted tree from blocking. The caller frees it.
static char *read_text(int root, const char *path)
{
    int file = open_in(root, path, O_RDONLY | O_NONBLOCK, 0);
    struct stat info;
    bool plain = file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
                 info.st_size < (off_t)STATUS_MAX;
    char *text = plain ? calloc(1, (size_t)info.st_size + 1) : NULL;

    if (text && pread(file, text, (size_t)info.st_size, 0) != (ssize_t)info.st_size) {
        free(text);
        text = NULL;
    }
    if (file >= 0)
        close(file);
    return text;
}

static void read_system(int root, struct cn_system *system)
{
    char *text = read_text(root, "/var/lib/dpkg/status");

    *system = (struct cn_system){0};
    if (text)
        cn_system_read(text, system);
    free(text);
}

static int check_release(int root, const struct cn_payload *payload, const char *path)
{
    char *text = read_text(root, CN_L4T_RELEASE_FILE);
    int code = cn_l4t_release_check(text ? text : "", payload, path);

    free(text);
    return code;
}

static int check_free(int root, const struct cn_payload *payload, const char *path)
{
    struct statvfs space;

    if (fstatvfs(root, &space))
        return CN_EXIT_DONE;
    return cn_system_check_free((uint64_t)space.f_bavail * space.f_frsize, payload, path);
}

static void look_for_wizard(int root, const char *path)
{
    static const char *const folders[] = {"/etc/systemd/system", "/lib/systemd/system"};
    ssize_t length = -1;

    for (size_t i = 0; i < 2 && length < 0; i++) {
        int folder = open_in(root, folders[i], O_RDONLY | O_DIRECTORY, 0);
        char target[256];

        if (folder < 0)
            continue;
        length = readlinkat(folder, "default.target", target, sizeof(target) - 1);
        close(folder);
        target[length < 0 ? 0 : length] = '\0';
        cn_system_note_wizard(target, path);
    }
}

int cn_tree_check(const char *path, const struct cn_payload *payload, bool replace)
{
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = CN_EXIT_FAILED;
    struct cn_system system;

    if (root < 0) {
        cn_console_error(NULL, "%s: %s", path, strerror(errno));
        return code;
    }
    read_system(root, &system);
    if (!system.architecture[0])
        cn_console_error("the root must hold a Debian or Ubuntu system",
                         "%s has no package database with libc6", path);
    else if (!replace && (exists(root, CN_PAYLOAD_ETC "/node.key") ||
                          exists(root, CN_PAYLOAD_ETC "/node.yaml")))
        cn_console_error("--replace writes over it", "%s holds the files of a board already", path);
    else
        code = cn_system_check(&system, payload->architecture, path);
    if (!code)
        code = check_release(root, payload, path);
    if (!code)
        code = check_free(root, payload, path);
    if (!code)
        look_for_wizard(root, path);
    close(root);
    return code;
}
