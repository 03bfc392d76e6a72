// pipeline_order.h - the order in which the members of a chain compute and send in a step.
//
// A chain is P members that each hold one part of a model. Each micro-batch runs forward from part
// 0 to part P - 1 and backward from there to part 0: one forward, one backward (1F1B), and at the
// end of the step no micro-batch is in flight. The step is a list of ticks, the same on all
// members. In a tick a part computes at most one pass; after it the tick's messages travel. All
// messages of a step have one order: by tick, then gradients before activations, then by sender.
// Each member makes its own calls in this order. A call blocks until its other member makes it,
// too. That cannot deadlock: of the earliest call that is not done, each member either waits in it
// or computes what it sends. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_PIPELINE_PARTS_MAX 16

enum cn_pipeline_pass {
    CN_PIPELINE_REST,     // the part computes nothing
    CN_PIPELINE_FORWARD,  // afterwards it sends activations to the next part, if there is one
    CN_PIPELINE_BACKWARD, // afterwards it sends gradients to the part before, if there is one
};

struct cn_pipeline {
    uint32_t parts, micro; // parts of the chain; micro-batches of the step
    uint32_t most;         // most micro-batches that a part has in flight; 0: as many as it may
    uint32_t forwards[CN_PIPELINE_PARTS_MAX];  // by part: forward passes before the next tick
    uint32_t backwards[CN_PIPELINE_PARTS_MAX]; // by part: backward passes before the next tick
    enum cn_pipeline_pass pass[CN_PIPELINE_PARTS_MAX]; // by part: what it computes in this tick
    uint32_t batch[CN_PIPELINE_PARTS_MAX];             // by part: its micro-batch in this tick
};

// A message between two neighbours after a tick.
struct cn_pipeline_message {
    uint32_t from, to; // parts
    uint32_t batch;    // micro-batch
    bool gradient;     // else activations
};

// Returns how many micro-batches a part may have between forward and backward: one, and two for
// each part behind it. That many keep the part busy if a message takes at most half as long as a
// pass.
uint32_t cn_pipeline_in_flight(uint32_t parts, uint32_t micro, uint32_t part);

// Begins a step. parts is 1 to CN_PIPELINE_PARTS_MAX. The caller may set most before the first
// tick: any number from 1 on ends the step, with more rests.
void cn_pipeline_begin(struct cn_pipeline *pipeline, uint32_t parts, uint32_t micro);

// Fills in pass and batch of the next tick. Returns false when the step is done.
bool cn_pipeline_tick(struct cn_pipeline *pipeline);

// Lists the messages after a tick in their order, and returns their number.
uint32_t cn_pipeline_messages(const struct cn_pipeline *pipeline,
                              struct cn_pipeline_message messages[CN_PIPELINE_PARTS_MAX]);
