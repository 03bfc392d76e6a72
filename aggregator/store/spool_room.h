// spool_room.h - who gets the room of the spool, for spool.c.
#pragma once

#include "aggregator/store/spool.h"

// The room is the spool's limit, or what the disk has beside its reserve if that is less. A group's
// share is the room divided by the number of groups that upload or wait. These make room for an
// update, in this order:
//
//   - uploads that measure the link;
//   - uploads of the group that have stopped, as when a leader died; then others' that have;
//   - if the group needs no more than its share: slow uploads of groups that have more than theirs;
//     after ten seconds of waiting, any uploads of such groups.
//
// A group that would have more than its share does not pass those that have waited longer. A
// measurement makes only those give way that have stopped or measure, too.
//
// Returns CN_EAGAIN when there is no room, CN_ENOSPC when the disk has none. Takes time in
// proportion to the square of the uploads, of which each board has one.
cn_err cn_spool_make_room(struct cn_spool *spool, const char *group,
                          const struct cn_declare_request *declared, uint64_t now_ms);
