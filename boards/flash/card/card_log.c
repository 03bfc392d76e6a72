#include "boards/flash/card/card_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define FORMAT "cairn-flash-cards/1"
#define LOG_MAX ((size_t)16 << 20)
#define LINE_MAX_SIZE 512

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

static int read_log(struct cn_card_log *log, const char *path, const char *head)
{
    struct cn_mapping file;
    cn_err err = cn_platform_map(path, LOG_MAX, &file);
    size_t whole = 0;
    int code;

    if (err) {
        cn_console_error(NULL, "%s: %s", path, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    code = take_text(log, file.data ? (const char *)file.data : "", file.size, head, path, &whole);
    cn_platform_unmap(&file);
    if (!code && (ftruncate(log->file, (off_t)whole) || (!whole && append(log, head)))) {
        cn_console_error(NULL, "%s: %s", path, strerror(errno));
        code = CN_EXIT_FAILED;
    }
    return code;
}

int cn_card_log_open(const char *image, const uint8_t order[CN_DIGEST_SIZE], bool make,
                     struct cn_card_log *log, bool *resumed)
{
    char path[1024], head[128];
    int code = CN_EXIT_DONE;

    *log = (struct cn_card_log){.file = -1};
    write_head(order, head);
    snprintf(path, sizeof(path), "%s.cards", image);
    log->file = open(path, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    *resumed = log->file >= 0;
    if (!*resumed && errno == ENOENT && !make)
        return CN_EXIT_DONE;
    if (!*resumed && errno == ENOENT)
        log->file = open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (log->file >= 0 && !cn_process_lock(log->file)) {
        cn_console_error("wait for it", "%s: another cairn-flash writes its cards", image);
        code = CN_EXIT_FAILED;
    } else if (*resumed)
        code = read_log(log, path, head);
    else if (log->file < 0 || append(log, head)) {
        cn_console_error(NULL, "%s: %s", path, strerror(errno));
        code = CN_EXIT_FAILED;
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
