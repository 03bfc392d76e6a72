#include "transport/board/link_events.h"

static struct cn_link_event *at(struct cn_link_events *events, uint32_t index)
{
    return &events->ring[(events->first + index) % CN_LINK_EVENT_TYPES];
}

struct cn_link_event *cn_link_events_push(struct cn_link_events *events,
                                          enum cn_link_event_type type)
{
    struct cn_link_event *event;

    for (uint32_t i = 0; i < events->count; i++) {
        if (at(events, i)->type == type)
            return at(events, i);
    }
    event = at(events, events->count++);
    *event = (struct cn_link_event){.type = type};
    return event;
}

cn_err cn_link_events_pop(struct cn_link_events *events, struct cn_link_event *event)
{
    if (!events->count)
        return CN_EAGAIN;
    *event = *at(events, 0);
    events->first = (events->first + 1) % CN_LINK_EVENT_TYPES;
    events->count--;
    return CN_OK;
}

void cn_link_events_forget_transfers(struct cn_link_events *events)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < events->count; i++) {
        const struct cn_link_event *event = at(events, i);

        if (event->type != CN_LINK_FETCHED && event->type != CN_LINK_GONE &&
            event->type != CN_LINK_RECEIPT)
            *at(events, kept++) = *event;
    }
    events->count = kept;
}
