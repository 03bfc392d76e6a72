// link_pump.h - passes the events of a link to a function, for subcommands that wait for this link
// only.
#pragma once

#include "runtime/port/link.h"

typedef cn_err (*cn_link_take_fn)(void *context, const struct cn_link_event *event);

// Waits at most wait_ms for the link, then calls take for each event that the link has. Stops at
// the first error of take or of the link and returns it.
cn_err cn_link_pump(struct cn_link *link, uint32_t wait_ms, cn_link_take_fn take, void *context);
