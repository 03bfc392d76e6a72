// link_events.h - the events of a link that the owner has not fetched yet.
//
// Only the newest event of each type is kept, so there is always room. Threading: none.
#pragma once

#include "runtime/port/link.h"

#define CN_LINK_EVENT_TYPES (CN_LINK_RECEIPT + 1)

struct cn_link_events {
    struct cn_link_event ring[CN_LINK_EVENT_TYPES];
    uint32_t first, count;
};

// Returns the event to fill in: the waiting one of this type, with its contents, or a new one.
struct cn_link_event *cn_link_events_push(struct cn_link_events *events,
                                          enum cn_link_event_type type);

// Takes the oldest event. Returns CN_EAGAIN when there is none.
cn_err cn_link_events_pop(struct cn_link_events *events, struct cn_link_event *event);

// Drops the events of transfers.
void cn_link_events_forget_transfers(struct cn_link_events *events);
