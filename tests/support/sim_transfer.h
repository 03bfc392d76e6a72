// sim_transfer.h - runs a whole upload or download over a simulated path.
#pragma once

#include "tests/support/sim_exchange.h"
#include "transport/transfer/controller.h"

struct cn_sim_case {
    struct cn_link_shape up, down;
    size_t size;       // of the frame or blob
    uint32_t body_max; // bytes of a message's body; 0: 1152
    bool download;
    bool again;        // an upload of which some chunks may be there already
    uint64_t later_us; // until then the gateway answers a declaration with "later" and Max-Age 1
    // Called after each step with the time since the start. It may reshape the path.
    void (*watch)(struct cn_exchange *exchange, const struct cn_controller *controller,
                  uint64_t elapsed_us);
};

struct cn_sim_result {
    bool done;           // finished within an hour of the simulated clock
    uint64_t elapsed_us; // from the first message to the verdict, or to the last byte
    double share; // rate reached, as a share of what headers and loss leave of the link's rate
    uint64_t retransmissions, spurious, repeats;
    struct cn_link_counts up, down;
    struct cn_controller controller;
};

// Sets both directions to the same link, with a queue of queue_ms.
void cn_sim_link(struct cn_sim_case *one, uint64_t rate_bps, uint64_t rtt_us, double loss,
                 uint64_t queue_ms);

// Runs the transfer. If it does not finish within an hour of the simulated clock, result->done is
// false.
void cn_sim_run(const struct cn_sim_case *one, struct cn_sim_result *result);
