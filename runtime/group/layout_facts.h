// layout_facts.h - what the search for a layout knows of the model, the members and their links.
//
// Times are microseconds, sizes are bytes, rates are kbit/s. Sums "before a place" run over the
// forward nodes before it and the backward nodes made for them, so the work of a part is a
// difference of two of them. The last entry of such a list, at index place_count, is the whole
// model's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/port/collective.h"

#define CN_LAYOUT_PLACES 48 // most places of a cut that are compared
#define CN_LAYOUT_STAGES 3  // stages of ZeRO

// A place where the model may be cut.
struct cn_layout_place {
    uint64_t nodes;    // forward nodes before the place
    uint64_t forward;  // bytes that a micro-batch sends over it
    uint64_t backward; // bytes of gradients that come back
    // Before the place: bytes of the trained gradients; of the whole training state; of what a
    // micro-batch keeps between its forward and its backward pass; and of a copy of the weights,
    // which a part needs while a version arrives.
    uint64_t gradients, state, saved, copy;
};

// Bytes of a whole model's step without recomputation: whole is needed on each member, shared is
// divided among the shards. A version that arrives does not count.
struct cn_layout_need {
    uint64_t whole, shared;
};

struct cn_layout_member {
    uint64_t limit; // bytes that training may take; 0: unknown
    uint64_t kbps;  // rate of its link; 0: not measured
    // Computing time of a micro-batch before each place, forward and backward together.
    double us[CN_LAYOUT_PLACES + 1];
    struct cn_layout_need needs[CN_LAYOUT_STAGES]; // by stage; zeros: no share fits
    // Bytes that a version takes in memory while it arrives: where the member holds the whole
    // model, and where it holds a share or a part.
    uint64_t copies_whole, copies_divided;
};

struct cn_layout_facts {
    uint32_t count; // members
    struct cn_layout_member members[CN_GROUP_MAX];
    uint32_t place_count;
    struct cn_layout_place places[CN_LAYOUT_PLACES + 1];
    double forward_share; // share of the computing time that is the forward pass
    double call_us;       // time of a message without bytes; 0: not measured
    double sum_share;    // share of a link's rate that the sum of all members reaches; 0: all of it
    uint64_t bucket;     // least bytes of gradients in a call without shards; 0: all in one call
    bool tunes;          // smaller buckets are tried in the first steps (bucket_tuner.h)
    uint64_t rest;       // bytes of a part's step beside state and saved values
    uint32_t micro;      // smallest number of micro-batches a member that the job wants
    uint32_t most_parts; // 1: no pipelines
    uint32_t not_parts;  // bit p: not p parts; bit 1: not without a cut
};
