#include "aggregator/store/audit.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/store/audit_private.h"
#include "aggregator/store/state_owner.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define MODE 0640
#define OPEN_TRIES 100 // another program may rotate the file between open and lock

struct cn_audit_who cn_audit_self(const char *by)
{
    return (struct cn_audit_who){.uid = cn_state_owner_caller(),
                                 .pid = getpid(),
                                 .start = cn_platform_process_start(),
                                 .by = by};
}

cn_err cn_audit_path(const char *directory, int age, char path[PATH_MAX])
{
    int length = age ? snprintf(path, PATH_MAX, "%s/%s.%d", directory, CN_AUDIT_FILE, age)
                     : snprintf(path, PATH_MAX, "%s/%s", directory, CN_AUDIT_FILE);
    return length < 0 || length >= PATH_MAX ? CN_EINVAL : CN_OK;
}

// --- the end of the chain ---

struct tail {
    uint64_t seq; // of the newest line; damaged lines after the newest readable one are counted
    bool counted; // seq goes on from a readable line
    char prev[2 * CN_DIGEST_SIZE + 1];
    off_t size; // of the file up to the end of the newest line
};

void cn_audit_digest_line(const char *line, size_t size, char text[2 * CN_DIGEST_SIZE + 1])
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(line, size, digest);
    cn_hex(text, digest, sizeof(digest));
}

// Returns the seq of a line; 0: the line has none that is valid.
static uint64_t read_seq(const char *line, size_t size)
{
    cJSON *root = cJSON_ParseWithLength(line, size);
    const cJSON *seq = cJSON_GetObjectItemCaseSensitive(root, "seq");
    double number = cJSON_IsNumber(seq) ? seq->valuedouble : 0;
    cJSON_Delete(root);
    return number >= 1 && number < 9e15 ? (uint64_t)number : 0;
}

// Returns the beginning of the line, among bytes, that ends at end.
static const char *find_line(const char *bytes, const char *end)
{
    const char *before = end > bytes ? memrchr(bytes, '\n', (size_t)(end - bytes)) : NULL;
    return before ? before + 1 : bytes;
}

// Goes back from the end of a file to its newest readable line. The chain continues from the bytes
// of the newest line, whatever they are. A damaged line must stay, so that verify finds it, and
// must not block commands.
static cn_err search_tail(const char *path, struct tail *tail)
{
    struct cn_mapping file;
    cn_err err = cn_platform_map(path, SIZE_MAX, &file);
    if (err)
        return err;
    const char *bytes = (const char *)file.data;
    const char *end = file.size ? memrchr(bytes, '\n', file.size) : NULL;
    if (end) {
        const char *line = find_line(bytes, end);
        tail->size = end - bytes + 1;
        cn_audit_digest_line(line, (size_t)(end - line), tail->prev);
    }
    while (end && !tail->counted) {
        const char *line = find_line(bytes, end);
        uint64_t seq = read_seq(line, (size_t)(end - line));
        tail->seq += seq ? seq : 1;
        tail->counted = seq != 0;
        end = line > bytes ? line - 1 : NULL;
    }
    cn_platform_unmap(&file);
    return CN_OK;
}

// Reads the newest complete line of an open file. Sets tail->size to 0 when there is none.
static cn_err read_tail(int file, const char *path, struct tail *tail)
{
    static char bytes[2 * CN_AUDIT_LINE_MAX];
    struct stat info;
    *tail = (struct tail){0};
    memset(tail->prev, '0', 2 * (size_t)CN_DIGEST_SIZE);
    if (fstat(file, &info) != 0)
        return cn_err_from_errno(errno);
    off_t begin = info.st_size > (off_t)sizeof(bytes) ? info.st_size - (off_t)sizeof(bytes) : 0;
    ssize_t size = pread(file, bytes, sizeof(bytes), begin);
    if (size < 0)
        return cn_err_from_errno(errno);
    const char *end = size ? memrchr(bytes, '\n', (size_t)size) : NULL;
    const char *line = end ? find_line(bytes, end) : NULL;
    uint64_t seq = line && (line > bytes || !begin) ? read_seq(line, (size_t)(end - line)) : 0;
    if (!seq)
        return search_tail(path, tail);
    tail->seq = seq;
    tail->counted = true;
    tail->size = begin + (end - bytes) + 1;
    cn_audit_digest_line(line, (size_t)(end - line), tail->prev);
    return CN_OK;
}

// The newest readable line may be in an older file, if a crash came between the rotation and the
// first line of the new file.
static cn_err find_tail(const char *directory, int file, struct tail *tail)
{
    char path[PATH_MAX];
    struct tail before;
    cn_err err = cn_audit_path(directory, 0, path);
    if (!err)
        err = read_tail(file, path, tail);
    if (err || tail->counted)
        return err;
    err = cn_audit_path(directory, 1, path);
    if (err)
        return err;
    int older = open(path, O_RDONLY | O_CLOEXEC);
    if (older < 0)
        return errno == ENOENT ? CN_OK : cn_err_from_errno(errno);
    err = read_tail(older, path, &before);
    close(older);
    if (err)
        return err;
    tail->seq += before.seq;
    if (!tail->size)
        memcpy(tail->prev, before.prev, sizeof(tail->prev));
    return CN_OK;
}

// --- writing ---

// Opens the file and locks it. Another program may have renamed it meanwhile; then tries again.
static cn_err open_locked(const char *path, int *file)
{
    struct stat held, named;
    for (int i = 0; i < OPEN_TRIES; i++) {
        *file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, MODE);
        if (*file < 0)
            return cn_err_from_errno(errno);
        if (flock(*file, LOCK_EX) == 0 && fstat(*file, &held) == 0 && stat(path, &named) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev)
            return CN_OK;
        close(*file);
    }
    *file = -1;
    return CN_EAGAIN;
}

// Makes audit.jsonl.1 of the file, .2 of the former .1, and so on. The oldest one goes.
static cn_err rotate(const char *directory)
{
    char from[PATH_MAX], to[PATH_MAX];
    for (int age = CN_AUDIT_KEPT - 1; age >= 0; age--) {
        cn_err err = cn_audit_path(directory, age, from);
        if (!err)
            err = cn_audit_path(directory, age + 1, to);
        if (err)
            return err;
        if (rename(from, to) != 0 && errno != ENOENT)
            return cn_err_from_errno(errno);
    }
    return cn_platform_sync_directory(directory);
}

static void write_date(char text[32])
{
    struct timespec now;
    struct tm date;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &date);
    size_t length = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &date);
    snprintf(text + length, 32 - length, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

// Makes the line with its end; the caller frees it with cJSON_free.
static char *make_line(const struct cn_audit_entry *entry, const struct tail *tail)
{
    char date[32];
    write_date(date);
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "seq", (double)(tail->seq + 1));
    cJSON_AddStringToObject(root, "t", date);
    cJSON *who = cJSON_AddObjectToObject(root, "who");
    cJSON_AddNumberToObject(who, "uid", (double)entry->who.uid);
    if (entry->who.pid)
        cJSON_AddNumberToObject(who, "pid", (double)entry->who.pid);
    if (entry->who.start)
        cJSON_AddNumberToObject(who, "start", (double)entry->who.start);
    cJSON_AddStringToObject(who, "by", entry->who.by);
    cJSON_AddStringToObject(root, "what", entry->what);
    cJSON_AddRawToObject(root, "arguments", entry->arguments ? entry->arguments : "{}");
    cJSON_AddStringToObject(root, "result", entry->result);
    if (entry->of)
        cJSON_AddNumberToObject(root, "of", (double)entry->of);
    cJSON_AddStringToObject(root, "prev", tail->prev);
    char *line = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return line;
}

static cn_err write_line(int file, const struct tail *tail, const char *line)
{
    size_t size = strlen(line), done = 0;
    if (size >= CN_AUDIT_LINE_MAX)
        return CN_ERANGE;
    if (ftruncate(file, tail->size) != 0)
        return cn_err_from_errno(errno);
    while (done <= size) { // the last byte is the end of the line
        const char *data = done < size ? line + done : "\n";
        size_t count = done < size ? size - done : 1;
        ssize_t written = pwrite(file, data, count, tail->size + (off_t)done);
        if (written <= 0)
            return written < 0 ? cn_err_from_errno(errno) : CN_EIO;
        done += (size_t)written;
    }
    return fdatasync(file) == 0 ? CN_OK : cn_err_from_errno(errno);
}

// Gives a new file its mode whatever the umask is, and the owner of the state: a command of root
// may have made the file, and the service must be able to write it.
static cn_err give_away(const char *directory, int file)
{
    struct stat state, made;
    if (fchmod(file, MODE) != 0 || stat(directory, &state) != 0 || fstat(file, &made) != 0)
        return cn_err_from_errno(errno);
    if (made.st_uid != state.st_uid && geteuid() == 0 &&
        fchown(file, state.st_uid, state.st_gid) != 0)
        return cn_err_from_errno(errno);
    return CN_OK;
}

static cn_err append_to(const char *directory, int file, const struct cn_audit_entry *entry,
                        uint64_t *seq)
{
    struct tail tail;
    cn_err err = find_tail(directory, file, &tail);
    if (err)
        return err;
    char *line = make_line(entry, &tail);
    if (!line)
        return CN_ENOMEM;
    bool fresh = tail.size == 0;
    err = fresh ? give_away(directory, file) : CN_OK;
    if (!err)
        err = write_line(file, &tail, line);
    cJSON_free(line);
    if (!err && fresh)
        err = cn_platform_sync_directory(directory);
    if (!err && seq)
        *seq = tail.seq + 1;
    return err;
}

cn_err cn_audit_append(const char *directory, const struct cn_audit_entry *entry, uint64_t *seq)
{
    char path[PATH_MAX];
    struct stat info;
    int file = -1;
    cn_err err = cn_audit_path(directory, 0, path);
    if (!err)
        err = open_locked(path, &file);
    if (!err && fstat(file, &info) == 0 && info.st_size >= (off_t)CN_AUDIT_SIZE) {
        err = rotate(directory); // under the lock of the file that goes
        close(file);
        file = -1;
        if (!err)
            err = open_locked(path, &file);
    }
    if (!err)
        err = append_to(directory, file, entry, seq);
    if (file >= 0)
        close(file);
    return err;
}
