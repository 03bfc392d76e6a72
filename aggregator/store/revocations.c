#include "aggregator/store/revocations.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/store/state_owner.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define MAGIC "cairn-revoked-1 "
#define DIGITS ((size_t)2 * CN_KEY_SIZE)
#define LINE_MAX_SIZE (sizeof(MAGIC) + CN_NAME_SIZE + DIGITS + 2)
#define FILE_MAX (64u << 20)

cn_err cn_revocations_path(const char *state, char *path, size_t size)
{
    char name[CN_PATH_SIZE];
    cn_state_owner_name(state, name);
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
        length--;
    int used = snprintf(path, size, "%.*s.revocations", (int)length, name);
    return used < 0 || (size_t)used >= size ? CN_EINVAL : CN_OK;
}

static bool parse(const char *line, size_t length, struct cn_revocation *entry)
{
    char text[LINE_MAX_SIZE + 1];
    if (length >= sizeof(text) || length < strlen(MAGIC) ||
        memcmp(line, MAGIC, strlen(MAGIC)) != 0 || memchr(line, '\0', length))
        return false;
    memcpy(text, line, length);
    text[length] = '\0';
    char *name = text + strlen(MAGIC);
    char *digits = strchr(name, ' ');
    if (!digits)
        return false;
    *digits++ = '\0';
    if (!cn_name_valid(name) || strlen(digits) != DIGITS)
        return false;
    memcpy(entry->name, name, strlen(name) + 1); // a valid name fits
    return cn_hex_parse(digits, entry->fingerprint, sizeof(entry->fingerprint)) == CN_OK;
}

uint32_t cn_revocations_read(const uint8_t *data, size_t size, cn_revocations_visit *visit,
                             void *context)
{
    const char *at = (const char *)data, *end = at + size;
    struct cn_revocation entry;
    uint32_t malformed = 0;
    bool more = true;
    while (more && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop && parse(at, (size_t)(stop - at), &entry))
            more = visit(context, &entry);
        else
            malformed++;
        at = stop ? stop + 1 : end;
    }
    return malformed;
}

static cn_err walk(const char *path, cn_revocations_visit *visit, void *context,
                   uint32_t *malformed)
{
    struct cn_mapping mapping;
    cn_state_owner_leave();
    cn_err err = cn_platform_map(path, FILE_MAX, &mapping);
    cn_state_owner_return();
    *malformed = 0;
    if (err)
        return err;
    *malformed = cn_revocations_read(mapping.data, mapping.size, visit, context);
    cn_platform_unmap(&mapping);
    return CN_OK;
}

static cn_err fingerprint_of(const struct cn_ledger_board *board, struct cn_revocation *entry)
{
    snprintf(entry->name, sizeof(entry->name), "%s", board->name);
    return cn_crypto_derive(board->secret, "cairn/1 fingerprint", entry->fingerprint);
}

struct search {
    const struct cn_revocation *wanted;
    bool found;
};

static bool compare(void *context, const struct cn_revocation *entry)
{
    struct search *search = context;
    search->found = strcmp(entry->name, search->wanted->name) == 0 &&
                    memcmp(entry->fingerprint, search->wanted->fingerprint, CN_KEY_SIZE) == 0;
    return !search->found;
}

static cn_err find(const char *path, const struct cn_revocation *wanted, bool *found)
{
    struct search search = {.wanted = wanted};
    uint32_t malformed;
    cn_err err = walk(path, compare, &search, &malformed);
    *found = search.found;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

// Begins a new line if a power cut left the last one incomplete.
static cn_err write_line(int fd, const struct cn_revocation *entry)
{
    char line[LINE_MAX_SIZE + 1], digits[DIGITS + 1], last = '\n';
    off_t size = lseek(fd, 0, SEEK_END);
    if (size > 0 && pread(fd, &last, 1, size - 1) != 1)
        return CN_EIO;
    cn_hex(digits, entry->fingerprint, sizeof(entry->fingerprint));
    int length = snprintf(line, sizeof(line), "%s" MAGIC "%s %s\n", last == '\n' ? "" : "\n",
                          entry->name, digits);
    if (write(fd, line, (size_t)length) != length)
        return errno ? cn_err_from_errno(errno) : CN_EIO;
    return fsync(fd) ? cn_err_from_errno(errno) : CN_OK;
}

// Makes a new list readable by everybody, whatever root's umask is. Root writes the list and the
// service reads it as another user; it holds no secret.
static int open_list(const char *path)
{
    const int flags = O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        return errno == EEXIST ? open(path, flags) : -1;
    if (fchmod(fd, 0644) == 0)
        return fd;
    close(fd);
    return -1;
}

static cn_err append_line(const char *path, const struct cn_revocation *entry)
{
    errno = 0;
    int fd = open_list(path);
    if (fd < 0)
        return cn_err_from_errno(errno);
    cn_err err = write_line(fd, entry);
    if (close(fd) && !err)
        err = CN_EIO;
    return err ? err : cn_platform_sync_parent(path);
}

// The list lies beside the state directory, where its owner may not write.
static cn_err append(const char *path, const struct cn_revocation *entry, bool *added)
{
    bool there;
    cn_err err = find(path, entry, &there);
    *added = !err && !there;
    if (!*added)
        return err;
    cn_state_owner_leave();
    err = append_line(path, entry);
    cn_state_owner_return();
    return err;
}

cn_err cn_revocations_add(const char *path, const struct cn_ledger_board *board)
{
    struct cn_revocation entry;
    bool added;
    cn_err err = fingerprint_of(board, &entry);
    return err ? err : append(path, &entry, &added);
}

// --- the ledger and the file ---

struct meeting {
    struct cn_ledger *ledger;
    const char *path;
    struct cn_revocations_report *report;
    cn_err err;
};

static bool revoke_listed(void *context, const struct cn_revocation *entry)
{
    struct meeting *meeting = context;
    struct cn_ledger_board board;
    struct cn_revocation enrolled;
    cn_err err = cn_ledger_find_board(meeting->ledger, entry->name, &board);
    if (err == CN_ENOTFOUND)
        return true;
    if (!err)
        err = fingerprint_of(&board, &enrolled);
    bool same = !err && !board.revoked &&
                memcmp(enrolled.fingerprint, entry->fingerprint, CN_KEY_SIZE) == 0;
    cn_crypto_wipe(&board, sizeof(board));
    if (same)
        err = cn_ledger_revoke(meeting->ledger, entry->name);
    if (same && !err) {
        meeting->report->revoked++;
        cn_log(CN_LOG_WARN, "ledger",
               "%s is revoked: its key is in %s, and this ledger had it enrolled", entry->name,
               meeting->path);
    }
    meeting->err = err;
    return !err;
}

static cn_err add_revoked(void *context, const struct cn_ledger_board *board)
{
    struct meeting *meeting = context;
    struct cn_revocation entry;
    bool added = false;
    if (!board->revoked)
        return CN_OK;
    cn_err err = fingerprint_of(board, &entry);
    if (!err)
        err = append(meeting->path, &entry, &added);
    if (!err)
        meeting->report->added += added;
    else
        meeting->report->unwritten = err;
    return CN_OK;
}

cn_err cn_revocations_apply(struct cn_ledger *ledger, const char *path,
                            struct cn_revocations_report *report)
{
    *report = (struct cn_revocations_report){0};
    struct meeting meeting = {.ledger = ledger, .path = path, .report = report};
    cn_err err = walk(path, revoke_listed, &meeting, &report->malformed);
    if (err && err != CN_ENOTFOUND) {
        report->unread = err;
        return err;
    }
    err = meeting.err;
    return err ? err : cn_ledger_boards(ledger, add_revoked, &meeting);
}

static bool add_listed(void *context, const struct cn_revocation *entry)
{
    struct meeting *meeting = context;
    bool added;
    meeting->err = append(meeting->path, entry, &added);
    if (!meeting->err)
        meeting->report->added += added;
    return !meeting->err;
}

cn_err cn_revocations_import(const char *path, const char *from,
                             struct cn_revocations_report *report)
{
    *report = (struct cn_revocations_report){0};
    struct meeting meeting = {.path = path, .report = report};
    cn_err err = walk(from, add_listed, &meeting, &report->malformed);
    return err ? err : meeting.err;
}
