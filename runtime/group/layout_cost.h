// layout_cost.h - predicts how long a step of a layout takes.
//
// A step is simulated in the order in which it will run. Of a pipeline that is each tick of
// pipeline_order.h, with one queue of messages for each board. Of a whole model it is each bucket
// of gradients: one is complete when the backward pass has come to the beginning of its layers, and
// then travels while the pass goes on. A layer's gradient is never divided, so of a model with few
// large layers less is hidden. Threading: none; pure.
#pragma once

#include "runtime/group/cut_search.h"

// Predicts the step of a chain. Returns the time at which its last part ends; ends[p] is that of
// part p.
double cn_cost_chain_us(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                        uint32_t parts, uint32_t micro, const uint32_t *places, double *ends);

// A layout without parts: replicas of shards.
struct cn_cost_whole {
    uint32_t replicas, shards, stage, micro;
    const double *us; // of the slowest member, as cn_layout_member.us
    uint64_t kbps;    // of the slowest link; 0: not measured
};

double cn_cost_whole_us(const struct cn_layout_facts *facts, const struct cn_cost_whole *whole);

// Returns the time in which n members add up bytes that each of them holds, in one call.
double cn_cost_sum_us(const struct cn_layout_facts *facts, uint32_t count, uint64_t bytes,
                      uint64_t kbps);
