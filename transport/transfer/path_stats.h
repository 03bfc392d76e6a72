// path_stats.h - figures of the path from a link's controllers, for planning.
//
// The rate is the controller's bandwidth without headers. It counts once the controller has filled
// the link; before that it is a lower bound. Loss is the share of a transfer's bytes that did not
// arrive. A transfer of a few parcels says nothing and does not count. Pure functions.
#pragma once

#include "runtime/port/link.h"
#include "transport/transfer/controller.h"
#include "transport/transfer/transport_choice.h"

// The state at the start of a transfer.
struct cn_path_stats_start {
    uint64_t now_us, delivered, lost;
};

struct cn_path_stats {
    // Rates and loss are moving averages with a weight of 1/4. Rates start at the first sample,
    // loss at 0. The round trip is the controller's smallest.
    struct cn_link_path_stats figures;
    struct cn_transport_choice way;
    struct cn_path_stats_start starts[2]; // of the transfers down and up
};

// Notes the start of a transfer. up: its direction.
void cn_path_stats_begin(struct cn_path_stats *measure, bool up,
                         const struct cn_controller *controller, uint64_t now_us);

// Adds the transfer that ended. size: its bytes; parcel_size: bytes of payload in each parcel.
// Returns whether the next transfer should go over a stream.
bool cn_path_stats_end(struct cn_path_stats *measure, bool up,
                       const struct cn_controller *controller, uint64_t size, uint32_t parcel_size,
                       uint64_t now_us);
