#include "aggregator/serve/event_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/log.h"

#define TAIL_MAX (256 << 10) // bytes of the newest file that are read at the start
#define EVENT_LINE_MAX 2048  // bytes of the JSON of an event
#define NUMBER_SIZE 13       // most bytes of "." and a number behind the path

// --- reading ---

static uint64_t read_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 0x1p53
               ? (uint64_t)item->valuedouble
               : 0;
}

bool cn_event_file_parse(const char *line, size_t size, struct cn_event *event)
{
    cJSON *object = cJSON_ParseWithLength(line, size);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "kind"));
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "text"));
    const char *subject = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "subject"));
    const char *job = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "job"));
    *event = (struct cn_event){.seq = read_number(object, "seq"),
                               .date_ms = read_number(object, "date_ms"),
                               .kind = cn_event_kind_find(kind ? kind : ""),
                               .code = read_number(object, "code")};
    bool valid = event->seq && event->kind < CN_EVENT_KINDS && text &&
                 (!subject || cn_name_valid(subject)) && (!job || cn_name_valid(job));
    if (valid) {
        cn_fault_clean(event->text, text);
        snprintf(event->job, sizeof(event->job), "%s", job ? job : "");
        snprintf(event->subject, sizeof(event->subject), "%s", subject ? subject : "");
    }
    cJSON_Delete(object);
    return valid;
}

// Restores the events in the last TAIL_MAX bytes of a file. Returns whether its last line is cut
// off, as a power cut leaves one.
static bool restore(int descriptor, uint64_t size, struct cn_events *events)
{
    static char tail[TAIL_MAX];
    uint64_t from = size > TAIL_MAX ? size - TAIL_MAX : 0;
    ssize_t got = pread(descriptor, tail, sizeof(tail), (off_t)from);
    struct cn_event event;
    const char *at = tail, *end = tail + (got > 0 ? got : 0);
    if (from) { // from may be in the middle of a line
        const char *next = memchr(at, '\n', (size_t)(end - at));
        at = next ? next + 1 : end;
    }
    while (at < end) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return true;
        if (cn_event_file_parse(at, (size_t)(next - at), &event))
            cn_events_restore(events, &event);
        at = next + 1;
    }
    return false;
}

// Restores the events of the newest older file that has any. The newest file has none when the
// program ended between its rotation and its first line, or when that line was cut off.
static void restore_older(const struct cn_event_file *file, struct cn_events *events)
{
    char path[sizeof(file->path) + NUMBER_SIZE];
    for (int number = 1; number <= CN_EVENT_FILES_KEPT && events->newest == 0; number++) {
        snprintf(path, sizeof(path), "%s.%d", file->path, number);
        int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat status;
        if (descriptor < 0)
            continue;
        if (!fstat(descriptor, &status) && S_ISREG(status.st_mode))
            (void)restore(descriptor, (uint64_t)status.st_size, events);
        close(descriptor);
    }
}

// --- writing ---

static bool open_stream(struct cn_event_file *file)
{
    int descriptor = open(file->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat status;
    if (descriptor < 0)
        return false;
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode)) {
        close(descriptor);
        errno = EINVAL;
        return false;
    }
    file->stream = fdopen(descriptor, "a+");
    if (!file->stream)
        close(descriptor);
    file->size = (uint64_t)status.st_size;
    return file->stream != NULL;
}

static void tell_failure(struct cn_event_file *file, uint64_t now_ms)
{
    uint64_t count;
    const char *why = strerror(errno);
    if (cn_log_limit_due(&file->lines, now_ms, &count))
        cn_log(CN_LOG_WARN, "events", "%s cannot be written: %s; the page still has the events",
               file->path, why);
}

void cn_event_file_open(struct cn_event_file *file, const char *directory, struct cn_events *events)
{
    int length = snprintf(file->path, sizeof(file->path), "%s/" CN_EVENT_FILE, directory);
    if (length < 0 || (size_t)length + 4 >= sizeof(file->path)) {
        file->path[0] = '\0';
        return;
    }
    if (!open_stream(file))
        tell_failure(file, 0);
    else if (restore(fileno(file->stream), file->size, events)) // the next event begins a line
        file->size += fputc('\n', file->stream) != EOF;
    if (events->newest == 0)
        restore_older(file, events);
}

void cn_event_file_close(struct cn_event_file *file)
{
    if (file->stream)
        fclose(file->stream);
    file->stream = NULL;
}

// Moves each file one number up; the oldest one is replaced.
static void rotate(struct cn_event_file *file)
{
    char from[sizeof(file->path) + NUMBER_SIZE], to[sizeof(file->path) + NUMBER_SIZE];
    cn_event_file_close(file);
    for (int number = CN_EVENT_FILES_KEPT; number > 0; number--) {
        snprintf(to, sizeof(to), "%s.%d", file->path, number);
        if (number > 1)
            snprintf(from, sizeof(from), "%s.%d", file->path, number - 1);
        else
            snprintf(from, sizeof(from), "%s", file->path);
        (void)rename(from, to); // fails if there is no such file yet
    }
}

static bool append(struct cn_event_file *file, const struct cn_buffer *line)
{
    if (file->size >= (file->size_max ? file->size_max : CN_EVENT_FILE_MAX))
        rotate(file);
    if (!file->stream && !open_stream(file))
        return false;
    if (fwrite(line->data, 1, line->size, file->stream) == line->size && !fflush(file->stream)) {
        file->size += line->size;
        return true;
    }
    int number = errno;
    cn_event_file_close(file); // what was not written is dropped
    errno = number;
    return false;
}

void cn_event_file_add(struct cn_event_file *file, const struct cn_event *event, uint64_t now_ms)
{
    struct cn_buffer line;
    struct cn_json_text json;
    if (!file->path[0])
        return;
    cn_buffer_init(&line, EVENT_LINE_MAX);
    cn_json_text_init(&json, &line);
    cn_events_write(event, &json);
    if (!json.err && !cn_buffer_append(&line, "\n", 1) && !append(file, &line))
        tell_failure(file, now_ms);
    cn_buffer_deinit(&line);
}
