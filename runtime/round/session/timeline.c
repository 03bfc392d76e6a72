#include "runtime/round/session/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "runtime/base/log.h"
#include "runtime/port/collective.h"
#include "runtime/port/platform.h"

#define WHOLE_MS 1000         // between two times when the file is completed
#define BUFFER_SIZE (1 << 20) // bytes; more than a second's spans, as a rule
#define END "\n]\n"           // completes the file; the next span takes its place

struct cn_timeline {
    FILE *file;
    char *buffer; // owned; of file
    uint64_t whole_ms;
    bool whole; // the file can be completed before its end: it is no pipe
    bool full;
    bool named[CN_GROUP_MAX];
};

static void deinit(struct cn_timeline *timeline)
{
    free(timeline->buffer);
    free(timeline);
}

cn_err cn_timeline_open(const char *path, struct cn_timeline **opened)
{
    struct cn_timeline *timeline = calloc(1, sizeof(*timeline));

    if (!timeline)
        return CN_ENOMEM;
    timeline->file = fopen(path, "w");
    if (!timeline->file) {
        cn_err err = cn_err_from_errno(errno);

        deinit(timeline);
        return err;
    }
    timeline->buffer = malloc(BUFFER_SIZE);
    if (timeline->buffer) // else the file has a small one of its own
        setvbuf(timeline->file, timeline->buffer, _IOFBF, BUFFER_SIZE);
    timeline->whole = !fseeko(timeline->file, 0, SEEK_SET);
    // The first entry has no comma before it, so that all others can have one.
    fputs("[{\"name\": \"clock\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"unit\": \"us\"}}",
          timeline->file);
    *opened = timeline;
    return CN_OK;
}

cn_err cn_timeline_close(struct cn_timeline *timeline)
{
    bool failed;

    if (!timeline)
        return CN_OK;
    fputs(END, timeline->file);
    failed = ferror(timeline->file) != 0;
    failed = fclose(timeline->file) || failed;
    deinit(timeline);
    return failed ? CN_EIO : CN_OK;
}

void cn_timeline_name(struct cn_timeline *timeline, uint32_t member, const char *name)
{
    static const char *const rows[] = {"epochs", "compute", "wire", "votes", "rounds"};

    if (timeline->named[member] || timeline->full)
        return;
    timeline->named[member] = true;
    fprintf(
        timeline->file,
        ",\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %u, \"args\": {\"name\": \"%s\"}}",
        member, name);
    for (int i = 0; i <= CN_TIMELINE_ROUNDS; i++)
        fprintf(timeline->file,
                ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %u, \"tid\": %d, \"args\": "
                "{\"name\": \"%s\"}}",
                member, i, rows[i]);
}

// Completes the file on the disk from time to time, and at the end when it has become too large.
static void complete(struct cn_timeline *timeline)
{
    uint64_t now_ms = cn_platform_now_ms();

    if (!timeline->whole)
        return;
    timeline->full = ftello(timeline->file) >= CN_TIMELINE_MAX;
    if (!timeline->full && timeline->whole_ms && now_ms - timeline->whole_ms < WHOLE_MS)
        return;
    timeline->whole_ms = now_ms;
    fputs(END, timeline->file);
    fflush(timeline->file);
    fseeko(timeline->file, -(off_t)strlen(END), SEEK_CUR);
    if (timeline->full)
        cn_log(CN_LOG_WARN, "session", "the timeline has %d MiB: later steps are not in it",
               CN_TIMELINE_MAX >> 20);
}

void cn_timeline_add(struct cn_timeline *timeline, const struct cn_timeline_span *span)
{
    if (timeline->full)
        return;
    fprintf(timeline->file,
            ",\n{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %u, \"tid\": %u, \"ts\": %" PRId64
            ", \"dur\": %" PRId64 ", \"args\": {\"number\": %" PRIu64,
            span->name, span->member, span->row, span->begin_us, span->end_us - span->begin_us,
            span->number);
    if (span->bytes)
        fprintf(timeline->file, ", \"bytes\": %" PRIu64, span->bytes);
    fputs("}}", timeline->file);
    complete(timeline);
}
