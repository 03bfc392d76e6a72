// auto_layout.h - "parallel: auto": shards, replicas and micro-batches of a step, from facts.
//
// Every member decides it by itself from the same facts, in exact integers and one order of
// float64 operations, so all come to the same. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/collective.h"

#define CN_AUTO_MICRO 16 // micro-batches of a member in a step, at most, unless the job wants more

struct cn_auto_member {
    uint64_t limit;    // bytes that training may take; 0: not known
    uint64_t needs;    // bytes of a step beside the optimizer's state, nothing computed twice
    uint64_t state;    // bytes of the whole optimizer's state
    uint64_t micro_us; // for a micro-batch
};

struct cn_auto_facts {
    uint32_t count; // members that may train
    struct cn_auto_member members[CN_GROUP_MAX];
    uint64_t gradients; // bytes
    uint64_t link_kbps; // of the slowest; 0: not measured
    uint32_t micro;     // micro-batches that the job wants at least
};

struct cn_auto_layout {
    uint32_t shards, replicas, micro;
    bool fits;             // else memory is saved by computing twice and smaller micro-batches
    uint32_t tightest;     // the member with the least to spare, or most too much
    uint64_t tightest_has; // its limit; 0: none has one
    uint64_t tightest_needs;
    uint64_t micro_us; // of the slowest member
    uint64_t wire_us;  // for the gradients of a step
};

// Shards: the fewest with which a step fits into the memory of every member, rather such that
// nobody is left over. Micro-batches: the fewest, in powers of two, with which what the wire takes
// beside the backward pass is at most a quarter of the computing.
void cn_auto_layout_choose(const struct cn_auto_facts *facts, struct cn_auto_layout *layout);

// "2 replicas of 1 shard, 4 micro-batches a step: ..." and why; tightest is that member's name.
void cn_auto_layout_text(const struct cn_auto_layout *layout, const char *tightest, char *text,
                         size_t size);
