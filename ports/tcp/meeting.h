// meeting.h - a rank connects to the next one and waits for the previous one.
#pragma once

#include "ports/tcp/pair.h"

struct cn_neighbours {
    struct cn_pair *next, *prev; // the caller closes both
    uint32_t lost;               // after an error: the member that did not come, or UINT32_MAX
};

// Listens at the board's own address until both are connected or the deadline (platform clock) is
// over. CN_ESTALE at once when a neighbour is in a later epoch; at the deadline CN_EAUTH or
// CN_ENOTSUP when that is why the missing one was refused, else CN_ETIMEOUT. CN_EEXIST when the
// port is taken. CN_ECANCELED soon after cancel_fd (-1 for none) became readable.
cn_err cn_meeting_hold(const struct cn_pair_config *pairs, uint32_t next_member,
                       uint32_t prev_member, uint64_t deadline_ms, int cancel_fd,
                       struct cn_neighbours *neighbours);
