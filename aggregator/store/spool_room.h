// spool_room.h - who gets the room of the spool, for spool.c.
#pragma once

#include "aggregator/store/spool.h"

// Makes room for an upload of a group. If the limit needs it, uploads are dropped: first those of
// the group that have stopped, as when a leader died; then others' that have stopped; then slow
// ones of groups that have more than their share, if the group needs no more than its own. A
// group's share is the limit divided by the number of groups that upload. CN_EAGAIN when there is
// no room, CN_ENOSPC when the disk has none. Takes time in proportion to the square of the uploads,
// of which each board has one.
cn_err cn_spool_make_room(struct cn_spool *spool, const char *group, uint64_t size,
                          uint64_t now_ms);
