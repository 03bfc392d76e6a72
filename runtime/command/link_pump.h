// link_pump.h - hands the events of a link to its user, for subcommands that wait for nothing else.
#pragma once

#include "runtime/port/link.h"

typedef cn_err (*cn_link_take_fn)(void *context, const struct cn_link_event *event);

// Waits at most wait_ms for the link, then hands on all events that are there. An error of take
// ends it, and the link's own.
cn_err cn_link_pump(struct cn_link *link, uint32_t wait_ms, cn_link_take_fn take, void *context);
