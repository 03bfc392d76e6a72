// measure.h - what finished transfers say about a link. Pure functions. Threading: none.
//
// A transfer counts when it is long enough to have filled the link: a frame of a few chunks is
// bound by its round trips and would make any link look thin.
#pragma once

#include "runtime/port/link.h"

struct cn_measure_sample {
    uint64_t size; // payload bytes that arrived
    uint64_t elapsed_us;
    uint32_t chunks; // that it has
    uint32_t sent;   // transmissions of them
};

// Adds a transfer up or down: moving averages with a weight of 1/4, the first sample as it is.
void cn_measure_up(struct cn_link_measure *measure, const struct cn_measure_sample *sample);
void cn_measure_down(struct cn_link_measure *measure, const struct cn_measure_sample *sample);
