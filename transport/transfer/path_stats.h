// path_stats.h - what the controllers of a link found out, for those who plan with it.
//
// The rate is the controller's bandwidth without headers. It counts once the controller has filled
// the link; before that it is only known to be no less. Loss is the share of a transfer's bytes
// that did not arrive. A transfer of a few parcels says nothing. Pure functions. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "transport/transfer/controller.h"
#include "transport/transfer/transport_choice.h"

struct cn_path_stats_start {
    uint64_t now_us, delivered, lost;
};

struct cn_path_stats {
    struct cn_link_path_stats figures; // moving averages with a weight of 1/4, the first as it is
    struct cn_transport_choice way;
    struct cn_path_stats_start starts[2]; // of the transfer down, up
};

void cn_path_stats_begin(struct cn_path_stats *measure, bool up,
                         const struct cn_controller *controller, uint64_t now_us);

// size bytes were sent in parcels of so many bytes of payload each. Returns whether the next
// transfer should go over a stream.
bool cn_path_stats_end(struct cn_path_stats *measure, bool up,
                       const struct cn_controller *controller, uint64_t size, uint32_t parcel_size,
                       uint64_t now_us);
