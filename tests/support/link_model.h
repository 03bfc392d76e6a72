// link_model.h - models one direction of a network path: queue, rate, loss, delay.
//
// A queue of bounded size stands before a token bucket. Then follow loss, delay, reordering and
// duplication, as on a thin radio link. Seed and order of calls determine all chance, so a run can
// be repeated. Loss happens behind the bottleneck, so a lost datagram has used the link. Pure: time
// is an argument. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cn_link_shape {
    uint64_t rate_bps;     // 0: no limit
    uint64_t delay_us;     // one way
    uint64_t queue_bytes;  // bytes that wait at most; more are dropped at the tail; 0: no limit
    uint64_t bucket_bytes; // bytes that may leave at once after a pause
    double loss;           // share that is lost, each datagram independently
    double burst_loss;     // share that is lost in bursts (Gilbert's model)
    double burst_length;   // mean datagrams in a burst; below 1: 1
    double reorder;        // share that is held back by reorder_us
    uint64_t reorder_us;
    double duplicate;  // share that arrives twice
    uint64_t hold_us;  // time at which a delay spike begins; nothing leaves during it
    uint64_t held_us;  // length of the spike, at whose end all that waited leaves; 0: no spike
    uint32_t mtu;      // larger datagrams are dropped; 0: no limit
    uint32_t overhead; // bytes that a datagram's headers add on the link
    uint64_t seed;
};

struct cn_link_counts {
    uint64_t offered, delivered, lost, overflowed, too_large; // datagrams
    uint64_t bytes; // bytes that used the link, with overhead
};

struct cn_link_model {
    struct cn_link_shape shape;
    struct cn_link_counts counts;
    uint64_t draws;
    double free_us; // when the bottleneck will have sent all that is queued
    bool bad;       // whether a burst of losses is under way
};

void cn_link_model_init(struct cn_link_model *model, const struct cn_link_shape *shape);

// Enters a datagram of size bytes at now_us. Returns the number of copies that leave, 0 to 2, and
// sets when they do.
unsigned cn_link_model_offer(struct cn_link_model *model, size_t size, uint64_t now_us,
                             uint64_t leave_us[2]);
