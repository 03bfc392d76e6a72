#include "aggregator/store/state_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/store/audit.h"
#include "aggregator/store/spool_name.h"
#include "aggregator/store/state_owner.h"
#include "runtime/port/platform.h"

#define TRIES 5
#define FILES "files"
#define PIECE (1u << 20)
#define OPEN_FILES 16

cn_err cn_state_copy_ledger(struct cn_ledger *ledger, const char *path)
{
    sqlite3 *to = NULL;
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return errno == EEXIST ? CN_EEXIST : cn_err_from_errno(errno);
    int result = sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE, NULL);
    sqlite3_backup *backup =
        result == SQLITE_OK ? sqlite3_backup_init(to, "main", ledger->db, "main") : NULL;
    // One step: a copy in pieces would begin again with each write of the run.
    result = backup ? sqlite3_backup_step(backup, -1) : SQLITE_ERROR;
    sqlite3_backup_finish(backup);
    sqlite3_close(to);
    cn_err err = result == SQLITE_DONE                              ? CN_OK
                 : result == SQLITE_BUSY || result == SQLITE_LOCKED ? CN_EAGAIN
                 : result == SQLITE_FULL                            ? CN_ENOSPC
                                                                    : CN_EIO;
    if (!err && fsync(file) != 0)
        err = cn_err_from_errno(errno);
    close(file);
    return err;
}

// --- files ---

static cn_err join(char path[PATH_MAX], const char *directory, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return length < 0 || length >= PATH_MAX ? CN_EINVAL : CN_OK;
}

// Copies the whole content of the file from, and adds its size to bytes.
static cn_err copy_content(int from, int to, uint64_t *bytes)
{
    static uint8_t piece[PIECE];
    struct stat info;
    if (ioctl(to, FICLONE, from) == 0) { // shares the blocks, where the file system can
        *bytes += fstat(from, &info) == 0 ? (uint64_t)info.st_size : 0;
        return CN_OK;
    }
    for (;;) {
        ssize_t count = read(from, piece, sizeof(piece));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count ? cn_err_from_errno(errno) : CN_OK;
        for (ssize_t done = 0; done < count;) {
            ssize_t written = write(to, piece + done, (size_t)(count - done));
            if (written < 0)
                return cn_err_from_errno(errno);
            done += written;
        }
        *bytes += (uint64_t)count;
    }
}

// Copies a file durably. A file that is gone is no error: check says whether it is needed.
static cn_err copy_file(struct cn_state_copy *copy, const char *from_path, const char *to_path)
{
    struct stat info;
    cn_state_owner_return(); // root would follow links
    int from = open(from_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int why = errno;
    cn_state_owner_leave();
    if (from < 0)
        return why == ENOENT || why == ELOOP || why == ENXIO ? CN_OK : cn_err_from_errno(why);
    if (fstat(from, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(from);
        return CN_OK;
    }
    int to = open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, info.st_mode & 0777);
    cn_err err = to < 0 ? cn_err_from_errno(errno) : copy_content(from, to, &copy->bytes);
    if (!err && fsync(to) != 0)
        err = cn_err_from_errno(errno);
    if (to >= 0)
        close(to);
    close(from);
    copy->files += !err;
    return err;
}

struct walk {
    struct cn_state_copy *copy;
    const char *to;
};

static cn_err take_file(void *context, const char *name)
{
    struct walk *walk = context;
    char from[PATH_MAX], to[PATH_MAX], folder[PATH_MAX], owner[CN_NAME_SIZE];
    uint32_t round, part;
    if (name[0] == '.') // a lock, or what a crash left
        return CN_OK;
    if (cn_spool_parse_part_name(name, &round, owner, &part)) // of an unfinished upload
        return CN_OK;
    cn_err err = join(folder, walk->copy->state, FILES);
    if (!err)
        err = join(from, folder, name);
    if (!err)
        err = join(to, walk->to, name);
    return err ? err : copy_file(walk->copy, from, to);
}

static cn_err copy_files(struct cn_state_copy *copy, const char *partial)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct walk walk = {.copy = copy, .to = to};
    cn_err err = join(from, copy->state, FILES);
    if (!err)
        err = join(to, partial, FILES);
    if (!err && mkdir(to, 0700) != 0)
        err = cn_err_from_errno(errno);
    if (!err)
        err = cn_platform_list(from, take_file, &walk);
    if (err == CN_ENOTFOUND) // a run that was never started has no files
        err = CN_OK;
    return err ? err : cn_platform_sync_directory(to);
}

// Copies files of the state directory itself. The last three are those of a submitted job.
static cn_err copy_others(struct cn_state_copy *copy, const char *partial)
{
    static const char *const names[] = {"written_by",       CN_AUDIT_FILE,      CN_AUDIT_FILE ".1",
                                        CN_AUDIT_FILE ".2", CN_AUDIT_FILE ".3", "profile.yaml",
                                        "submitted.yaml",   "model.onnx"};
    _Static_assert(CN_AUDIT_KEPT == 3, "all files of the audit are named");
    char from[PATH_MAX], to[PATH_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cn_err err = join(from, copy->state, names[i]);
        if (!err)
            err = join(to, partial, names[i]);
        if (!err)
            err = copy_file(copy, from, to);
        if (err)
            return err;
    }
    return CN_OK;
}

// --- tries ---

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind;
    return place->level ? remove(path) : 0;
}

// Removes what a try made, so that the next one finds an empty directory.
static cn_err clear(const char *partial)
{
    return nftw(partial, remove_entry, OPEN_FILES, FTW_DEPTH | FTW_PHYS) ? CN_EIO : CN_OK;
}

static cn_err try_once(struct cn_state_copy *copy, const char *partial)
{
    char path[PATH_MAX];
    copy->files = 0;
    copy->bytes = 0;
    cn_err err = clear(partial);
    if (!err)
        err = join(path, partial, CN_LEDGER_FILE);
    if (!err)
        err = cn_state_copy_ledger(copy->ledger, path);
    if (!err)
        err = copy_files(copy, partial);
    if (!err)
        err = copy_others(copy, partial);
    if (!err)
        err = copy->check(copy->context, partial);
    return err;
}

// Makes the names of the copy durable: its own, and that of the directory in which it lies.
static cn_err publish(const struct cn_state_copy *copy, const char *partial)
{
    cn_err err = cn_platform_sync_directory(partial);
    if (err)
        return err;
    if (rename(partial, copy->to) != 0)
        return errno == ENOTEMPTY || errno == EEXIST ? CN_EEXIST : cn_err_from_errno(errno);
    return cn_platform_sync_parent(copy->to);
}

cn_err cn_state_copy_make(struct cn_state_copy *copy)
{
    char partial[PATH_MAX];
    int length = snprintf(partial, sizeof(partial), "%s.partial", copy->to);
    if (length < 0 || (size_t)length >= sizeof(partial))
        return CN_EINVAL;
    if (access(copy->to, F_OK) == 0)
        return CN_EEXIST;
    if (mkdir(partial, 0700) != 0)
        return errno == EEXIST ? CN_EEXIST : cn_err_from_errno(errno);
    cn_err err = CN_EAGAIN;
    for (int i = 0; i < TRIES && (err == CN_EAGAIN || err == CN_ENOTFOUND); i++)
        err = try_once(copy, partial);
    if (!err && copy->add)
        err = copy->add(copy->context, partial);
    if (!err)
        err = publish(copy, partial);
    if (err && clear(partial) == CN_OK)
        (void)rmdir(partial);
    return err == CN_ENOTFOUND ? CN_EAGAIN : err;
}
