// link_model.h - one direction of a network path: what becomes of a datagram that enters it.
//
// A queue of bounded size in front of a token bucket, then loss, delay, reordering and duplication,
// as on a thin radio link. All chance comes from the seed and the order of calls, so a run can be
// repeated. Loss strikes behind the bottleneck: what is lost has used the link. Pure: time comes in
// as an argument. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_link_shape {
    uint64_t rate_bps;     // 0: no limit
    uint64_t delay_us;     // one way
    uint64_t queue_bytes;  // more is dropped at the tail; 0: no limit
    uint64_t bucket_bytes; // that may leave at once after a pause
    double loss;           // share lost, each datagram for itself
    double burst_loss;     // share lost in bursts (Gilbert's model) ...
    double burst_length;   // ... of this mean length; below 1: 1
    double reorder;        // share that is held back by reorder_us
    uint64_t reorder_us;
    double duplicate;  // share that arrives twice
    uint64_t hold_us;  // at this time begins a spike of delay, in which nothing leaves ...
    uint64_t held_us;  // ... for so long; all that waited leaves at its end. 0: no spike
    uint32_t mtu;      // larger ones are dropped; 0: no limit
    uint32_t overhead; // bytes a datagram's headers add on the link
    uint64_t seed;
};

struct cn_link_counts {
    uint64_t offered, delivered, lost, overflowed, too_large; // datagrams
    uint64_t bytes;                                           // that used the link, with overhead
};

struct cn_link_model {
    struct cn_link_shape shape;
    struct cn_link_counts counts;
    uint64_t draws;
    double free_us; // when the bottleneck will have sent all that is queued
    bool bad;       // in a burst of losses
};

void cn_link_model_init(struct cn_link_model *model, const struct cn_link_shape *shape);

// A datagram of size bytes enters at now_us. Returns how many copies leave, 0 to 2, and when.
unsigned cn_link_model_offer(struct cn_link_model *model, size_t size, uint64_t now_us,
                             uint64_t leave_us[2]);
