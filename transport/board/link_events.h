// link_events.h - the events of a link that were not handed out yet.
//
// Of one type only the newest is kept, so there is always room.
#pragma once

#include "runtime/port/link.h"

#define CN_LINK_EVENT_TYPES (CN_LINK_RECEIPT + 1)

struct cn_link_events {
    struct cn_link_event ring[CN_LINK_EVENT_TYPES];
    uint32_t first, count;
};

// The event to fill in: a new one, or the one of this type that waits.
struct cn_link_event *cn_link_events_push(struct cn_link_events *events,
                                          enum cn_link_event_type type);

// CN_EAGAIN when there is none.
cn_err cn_link_events_pop(struct cn_link_events *events, struct cn_link_event *event);

// Drops what transfers have told.
void cn_link_events_forget_transfers(struct cn_link_events *events);
