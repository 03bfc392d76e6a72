#include "aggregator/show/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cn_events_deinit(struct cn_events *events)
{
    free(events->ring);
    *events = (struct cn_events){0};
}

// Returns the place of the next event, or NULL without memory.
static struct cn_event *place_next(struct cn_events *events, uint64_t seq)
{
    if (!events->ring) // the system gives memory only to the pages that are written
        events->ring = calloc(CN_EVENTS_KEPT, sizeof(*events->ring));
    if (!events->ring)
        return NULL;
    if (seq != events->newest + 1)
        events->count = 0; // only numbers without gaps are found by their place
    events->newest = seq;
    events->count += events->count < CN_EVENTS_KEPT;
    return &events->ring[seq % CN_EVENTS_KEPT];
}

const struct cn_event *cn_events_add(struct cn_events *events, const struct cn_event_facts *facts,
                                     uint64_t date_ms)
{
    struct cn_event *event = place_next(events, events->newest + 1);
    if (!event)
        return NULL;
    *event = (struct cn_event){
        .seq = events->newest,
        .date_ms = date_ms,
        .kind = facts->kind,
        .code = facts->code,
        .run = facts->run,
    };
    snprintf(event->job, sizeof(event->job), "%s", facts->job ? facts->job : "");
    snprintf(event->subject, sizeof(event->subject), "%s", facts->subject);
    cn_fault_clean(event->text, facts->text);
    return event;
}

void cn_events_restore(struct cn_events *events, const struct cn_event *event)
{
    struct cn_event *to = event->seq > events->newest ? place_next(events, event->seq) : NULL;
    if (!to)
        return;
    *to = *event;
    cn_fault_clean(to->text, event->text);
}

const struct cn_event *cn_events_find(const struct cn_events *events, uint64_t seq)
{
    bool kept = events->count && seq <= events->newest && seq > events->newest - events->count;
    return kept ? &events->ring[seq % CN_EVENTS_KEPT] : NULL;
}

void cn_events_write_members(const struct cn_event *event, struct cn_json_text *json)
{
    cn_json_count(json, "seq", event->seq);
    cn_json_count(json, "date_ms", event->date_ms);
    cn_json_string(json, "kind", cn_event_kind_word(event->kind));
    if (cn_event_kind_is_alarm(event->kind))
        cn_json_bool(json, "alarm", true);
    if (event->job[0])
        cn_json_string(json, "job", event->job);
    if (event->subject[0])
        cn_json_string(json, "subject", event->subject);
    if (event->code)
        cn_json_count(json, "code", event->code);
    cn_json_foreign(json, "text", event->text);
}

void cn_events_write(const struct cn_event *event, struct cn_json_text *json)
{
    cn_json_open(json, NULL, '{');
    cn_events_write_members(event, json);
    cn_json_close(json, '}');
}

static bool is_about(const struct cn_event *event, const char *job)
{
    return event && (!job || strcmp(event->job, job) == 0);
}

// Returns the sequence number of the first of the newest events, as many as an answer has.
static uint64_t find_newest(const struct cn_events *events, const char *job)
{
    uint64_t first = events->newest - events->count + 1, seq = events->newest + 1;
    for (unsigned found = 0; seq > first && found < CN_EVENTS_ANSWER; seq--)
        found += is_about(cn_events_find(events, seq - 1), job);
    return seq;
}

void cn_events_write_from(const struct cn_events *events, const char *job, uint64_t from,
                          struct cn_json_text *json)
{
    uint64_t first = events->newest - events->count + 1, last = events->newest;
    uint64_t seq = !from ? find_newest(events, job) : from > first ? from : first;
    cn_json_open(json, "events", '[');
    for (unsigned written = 0; seq <= last && written < CN_EVENTS_ANSWER; seq++) {
        const struct cn_event *event = cn_events_find(events, seq);
        if (!is_about(event, job))
            continue;
        cn_events_write(event, json);
        written++;
    }
    cn_json_close(json, ']');
    cn_json_count(json, "next", seq <= last ? seq : last + 1);
    cn_json_bool(json, "more", seq <= last);
}
