#include "aggregator/show/tracker.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/hash.h"

cn_err cn_show_tracker_begin(struct cn_show_tracker *tracker, size_t count, uint64_t date_ms)
{
    if (tracker->first == 0)
        tracker->first = tracker->newest = date_ms ? date_ms : 1;
    if (count <= tracker->count)
        return CN_OK;
    void *marks = realloc(tracker->marks, count * sizeof(*tracker->marks));
    if (!marks)
        return CN_ENOMEM;
    tracker->marks = marks;
    memset(tracker->marks + tracker->count, 0, (count - tracker->count) * sizeof(*tracker->marks));
    tracker->count = count;
    return CN_OK;
}

void cn_show_tracker_deinit(struct cn_show_tracker *tracker)
{
    free(tracker->marks);
    memset(tracker, 0, sizeof(*tracker));
}

uint64_t cn_show_tracker_note(struct cn_show_tracker *tracker, size_t board, const void *text,
                              size_t size)
{
    struct cn_show_mark *mark = &tracker->marks[board];
    uint64_t hash = cn_hash64(text, size);
    if (mark->changed == 0 || mark->hash != hash)
        *mark = (struct cn_show_mark){hash, ++tracker->newest};
    return mark->changed;
}

uint64_t cn_show_tracker_known(const struct cn_show_tracker *tracker, uint64_t since)
{
    return since >= tracker->first && since <= tracker->newest ? since : 0;
}
