#include "runtime/round/session/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/port/collective.h"

struct cn_timeline {
    FILE *file;
    bool named[CN_GROUP_MAX];
};

cn_err cn_timeline_open(const char *path, struct cn_timeline **opened)
{
    struct cn_timeline *timeline = calloc(1, sizeof(*timeline));

    if (!timeline)
        return CN_ENOMEM;
    timeline->file = fopen(path, "w");
    if (!timeline->file) {
        cn_err err = cn_err_from_errno(errno);

        free(timeline);
        return err;
    }
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
    fputs("\n]\n", timeline->file);
    failed = ferror(timeline->file) != 0;
    failed = fclose(timeline->file) || failed;
    free(timeline);
    return failed ? CN_EIO : CN_OK;
}

void cn_timeline_name(struct cn_timeline *timeline, uint32_t member, const char *name)
{
    static const char *const rows[] = {"epochs", "compute", "wire", "votes"};

    if (timeline->named[member])
        return;
    timeline->named[member] = true;
    fprintf(
        timeline->file,
        ",\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %u, \"args\": {\"name\": \"%s\"}}",
        member, name);
    for (int i = 0; i < 4; i++)
        fprintf(timeline->file,
                ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %u, \"tid\": %d, \"args\": "
                "{\"name\": \"%s\"}}",
                member, i, rows[i]);
}

void cn_timeline_add(struct cn_timeline *timeline, const struct cn_timeline_span *span)
{
    fprintf(timeline->file,
            ",\n{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %u, \"tid\": %u, \"ts\": %" PRId64
            ", \"dur\": %" PRId64 ", \"args\": {\"number\": %" PRIu64,
            span->name, span->member, span->row, span->begin_us, span->end_us - span->begin_us,
            span->number);
    if (span->bytes)
        fprintf(timeline->file, ", \"bytes\": %" PRIu64, span->bytes);
    fputs("}}", timeline->file);
}
