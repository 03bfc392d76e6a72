#include "boards/flash/card/card_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define FORMAT "cairn-flash-cards/1"
#define LOG_MAX ((size_t)16 << 20)
#define LINE_MAX_SIZE 512
#define TRIES 5 // while others remove the file

static const char *const words[] = {[CN_CARD_NEW] = "undone",
                                    [CN_CARD_BEGUN] = "begun",
                                    [CN_CARD_TABLE] = "table",
                                    [CN_CARD_WRITTEN] = "written"};

static struct cn_card_entry *find(const struct cn_card_log *log, const char *name)
{
    for (size_t i = 0; i < log->count; i++)
        if (strcmp(log->entries[i].name, name) == 0)
            return &log->entries[i];
    return NULL;
}

static cn_err set_state(struct cn_card_log *log, const char *name, enum cn_card_state state)
{
    struct cn_card_entry *entry = find(log, name), *grown;

    if (!entry) {
        grown = realloc(log->entries, (log->count + 1) * sizeof(*grown));
        if (!grown)
            return CN_ENOMEM;
        log->entries = grown;
        entry = &grown[log->count++];
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    }
    entry->state = state;
    return CN_OK;
}

static bool take_line(struct cn_card_log *log, const char *line)
{
    char word[16], name[CN_NAME_SIZE];

    if (sscanf(line, "%15s %63s", word, name) != 2 || !cn_name_valid(name))
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i]) == 0)
            return set_state(log, name, (enum cn_card_state)i) == CN_OK;
    return false;
}

static void write_head(const uint8_t order[CN_DIGEST_SIZE], char head[128])
{
    char digest[2 * CN_DIGEST_SIZE + 1];

    cn_hex(digest, order, CN_DIGEST_SIZE);
    snprintf(head, 128, FORMAT " %s\n", digest);
}

// Reads the lines of the file. Sets *whole to the size of its whole lines.
static int take_text(struct cn_card_log *log, const char *text, size_t size, const char *head,
                     const char *path, size_t *whole)
{
    size_t at = strlen(head);

    *whole = 0;
    if (size < at && memcmp(text, head, size) == 0)
        return CN_EXIT_DONE; // the program that made the file was killed
    if (size < at || memcmp(text, head, at) != 0) {
        cn_console_error("remove the image and its .json and .cards, or choose another -o",
                         "%s is about another base image or other packages", path);
        return CN_EXIT_FAILED;
    }
    for (const char *end; (end = memchr(text + at, '\n', size - at));) {
        char line[LINE_MAX_SIZE];

        snprintf(line, sizeof(line), "%.*s", (int)(end - text - (ptrdiff_t)at), text + at);
        if (!take_line(log, line)) {
            cn_console_error(NULL, "%s is damaged: '%s'", path, line);
            return CN_EXIT_FAILED;
        }
        at = (size_t)(end - text) + 1;
    }
    *whole = at;
    return CN_EXIT_DONE;
}

static cn_err append(const struct cn_card_log *log, const char *text)
{
    size_t size = strlen(text);

    if (write(log->file, text, size) != (ssize_t)size || fdatasync(log->file))
        return cn_err_from_errno(errno);
    return CN_OK;
}

static int complain(const char *path, const char *fault)
{
    cn_console_error(NULL, "%s: %s", path, fault);
    return CN_EXIT_FAILED;
}

static int read_log(struct cn_card_log *log, const char *path, const char *head, bool look)
{
    struct cn_mapping file;
    cn_err err = cn_platform_map(path, LOG_MAX, &file);
    size_t whole = 0;
    int code;

    if (err)
        return complain(path, cn_err_text(err));
    code = take_text(log, file.data ? (const char *)file.data : "", file.size, head, path, &whole);
    cn_platform_unmap(&file);
    if (!code && !look && (ftruncate(log->file, (off_t)whole) || (!whole && append(log, head))))
        code = complain(path, strerror(errno));
    return code;
}

// Opens or makes the file and locks it. Returns 0, or errno. ESTALE: it was removed meanwhile.
static int claim(const char *path, enum cn_card_log_use use, int *file, bool *resumed)
{
    struct stat info;

    *file = open(path, (use == CN_CARD_LOG_LOOK ? O_RDONLY | O_NONBLOCK : O_RDWR | O_APPEND) |
                           O_NOFOLLOW | O_CLOEXEC);
    *resumed = *file >= 0;
    if (!*resumed && errno == ENOENT && use == CN_CARD_LOG_MAKE)
        *file = open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (*file < 0)
        return errno == EEXIST ? ESTALE : errno;
    if (fstat(*file, &info))
        return errno;
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid())
        return EPERM;
    if (!cn_process_lock(*file) || fstat(*file, &info))
        return errno;
    return info.st_nlink ? 0 : ESTALE;
}

int cn_card_log_open(const char *image, const uint8_t order[CN_DIGEST_SIZE],
                     enum cn_card_log_use use, struct cn_card_log *log, bool *resumed)
{
    char path[1024], head[128];
    int code = CN_EXIT_DONE, fault = ESTALE, file = -1;

    *log = (struct cn_card_log){.file = -1};
    write_head(order, head);
    snprintf(path, sizeof(path), "%s.cards", image);
    for (int i = 0; i < TRIES && fault == ESTALE; i++) {
        if (file >= 0)
            close(file);
        fault = claim(path, use, &file, resumed);
    }
    log->file = file;
    if (fault == ENOENT && use != CN_CARD_LOG_MAKE)
        return CN_EXIT_DONE;
    if (fault == EWOULDBLOCK) {
        cn_console_error("wait for it", "%s: another cairn-flash writes its cards", image);
        code = CN_EXIT_FAILED;
    } else if (fault) {
        code = complain(path, fault == EPERM ? "it is not a file of this user" : strerror(fault));
    } else if (*resumed) {
        code = read_log(log, path, head, use == CN_CARD_LOG_LOOK);
    } else if (append(log, head)) {
        code = complain(path, strerror(errno));
    }
    if (code)
        cn_card_log_close(log);
    return code;
}

enum cn_card_state cn_card_log_find(const struct cn_card_log *log, const char *name)
{
    const struct cn_card_entry *entry = find(log, name);

    return entry ? entry->state : CN_CARD_NEW;
}

cn_err cn_card_log_note(struct cn_card_log *log, const char *name, enum cn_card_state state,
                        const char *place)
{
    char line[LINE_MAX_SIZE];
    cn_err err;

    snprintf(line, sizeof(line), "%s %s %s\n", words[state], name, place);
    err = append(log, line);
    return err ? err : set_state(log, name, state);
}

void cn_card_log_remove(const char *image, struct cn_card_log *log)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s.cards", image);
    if (log->file >= 0)
        unlink(path);
    cn_card_log_close(log);
}

void cn_card_log_close(struct cn_card_log *log)
{
    if (log->file > 0)
        close(log->file);
    free(log->entries);
    *log = (struct cn_card_log){.file = -1};
}
