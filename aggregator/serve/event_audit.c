#include "aggregator/serve/event_audit.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/name.h"

#define RESULT_SIZE 256

static int open_newest(const char *state)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", state, CN_AUDIT_FILE);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

void cn_event_audit_open(struct cn_event_audit *audit, const char *state)
{
    struct stat info;
    *audit = (struct cn_event_audit){
        .state = state, .file = open_newest(state), .self = cn_audit_self("")};
    if (audit->file >= 0 && fstat(audit->file, &info) == 0)
        audit->read = info.st_size;
}

void cn_event_audit_close(struct cn_event_audit *audit)
{
    if (audit->state && audit->file >= 0)
        close(audit->file);
    *audit = (struct cn_event_audit){.file = -1};
}

// Returns the last part of a path: events go to people who may not know where files lie.
static const char *shorten(const char *value)
{
    const char *last = strrchr(value, '/');
    return last && last[1] ? last + 1 : value;
}

// Adds the arguments to a result that has no words of its own.
static void add_arguments(const cJSON *arguments, char result[RESULT_SIZE])
{
    const cJSON *argument;
    cJSON_ArrayForEach(argument, arguments)
    {
        size_t length = strlen(result);
        const char *value = cJSON_GetStringValue(argument);
        if (value)
            snprintf(result + length, RESULT_SIZE - length, "%s %s %s",
                     argument == arguments->child ? ":" : ",", argument->string, shorten(value));
    }
}

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

// Says whether this process wrote a line. In two containers both programs may be process 1, so the
// number alone does not say.
static bool is_own(const struct cn_audit_who *self, const cJSON *who)
{
    const cJSON *pid = cJSON_GetObjectItemCaseSensitive(who, "pid");
    const cJSON *start = cJSON_GetObjectItemCaseSensitive(who, "start");
    double began = cJSON_IsNumber(start) ? start->valuedouble : 0;
    return cJSON_IsNumber(pid) && pid->valueint == self->pid && began == (double)self->start;
}

// Tells of the line, if it says that a command of another process was carried out.
static void take_line(const struct cn_audit_who *self, const char *line, size_t size,
                      cn_event_audit_tell *tell, void *context)
{
    char result[RESULT_SIZE];
    cJSON *root = cJSON_ParseWithLength(line, size);
    const cJSON *who = cJSON_GetObjectItemCaseSensitive(root, "who");
    snprintf(result, sizeof(result), "%s", text_of(root, "result"));
    if (!is_own(self, who) && strcmp(text_of(who, "by"), "command") == 0 &&
        strncmp(result, "done", 4) == 0) {
        const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(root, "arguments");
        const char *job = text_of(arguments, "job");
        if (strcmp(result, "done") == 0)
            add_arguments(arguments, result);
        tell(context, text_of(root, "what"), cn_name_valid(job) ? job : NULL, result);
    }
    cJSON_Delete(root);
}

// Takes the complete lines among the bytes behind those that were read. Returns whether there were
// any.
static bool take_lines(struct cn_event_audit *audit, cn_event_audit_tell *tell, void *context)
{
    static char bytes[2 * CN_AUDIT_LINE_MAX]; // static because it is large
    ssize_t size = pread(audit->file, bytes, sizeof(bytes), audit->read);
    const char *line = bytes, *end;
    while (size > 0 && (end = memchr(line, '\n', (size_t)(bytes + size - line)))) {
        take_line(&audit->self, line, (size_t)(end - line), tell, context);
        line = end + 1;
    }
    if (line == bytes && size == (ssize_t)sizeof(bytes))
        line += size; // no line of the audit is so long: the file is damaged
    audit->read += line - bytes;
    return line != bytes;
}

// Opens the newest file if the open one was renamed, after the last lines of that were taken.
// Returns whether there is another file now.
static bool follow(struct cn_event_audit *audit, cn_event_audit_tell *tell, void *context)
{
    struct stat held, named;
    int file = open_newest(audit->state);
    if (file < 0)
        return false;
    bool same = audit->file >= 0 && fstat(audit->file, &held) == 0 && fstat(file, &named) == 0 &&
                held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (same) {
        close(file);
        return false;
    }
    while (audit->file >= 0 && take_lines(audit, tell, context))
        ;
    if (audit->file >= 0)
        close(audit->file);
    audit->file = file;
    audit->read = 0;
    return true;
}

void cn_event_audit_look(struct cn_event_audit *audit, cn_event_audit_tell *tell, void *context)
{
    if (!audit->state)
        return;
    bool more = audit->file >= 0 && take_lines(audit, tell, context);
    if (!more && follow(audit, tell, context))
        take_lines(audit, tell, context);
}
