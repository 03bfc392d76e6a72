// auto_layout.h - "parallel: auto": chooses stage, shards, replicas and micro-batches of a step.
//
// Every member computes the layout from the same facts, with exact integers and a fixed order of
// float64 operations, so all get the same result. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/collective.h"

#define CN_AUTO_STAGES 3
#define CN_AUTO_MICRO 16 // most micro-batches of a member in a step, unless the job wants more

struct cn_auto_member {
    uint64_t limit; // bytes that training may take; 0: unknown
    // Bytes of a step in each stage of ZeRO, without recomputation: whole is needed on each member,
    // shared is divided among the shards.
    struct cn_auto_need {
        uint64_t whole, shared;
    } needs[CN_AUTO_STAGES];
    uint64_t micro_us; // computing time of a micro-batch
};

struct cn_auto_facts {
    uint32_t count; // members that may train
    struct cn_auto_member members[CN_GROUP_MAX];
    uint64_t gradients; // bytes of all gradients
    uint64_t link_kbps; // rate of the slowest link; 0: not measured
    uint32_t micro;     // smallest number of micro-batches that the job wants
};

// The member with the least memory to spare, or the largest lack of memory.
struct cn_auto_tightest {
    uint32_t member;
    uint64_t has;   // its limit in bytes; 0: no member has a limit
    uint64_t needs; // bytes
};

struct cn_auto_layout {
    uint32_t shards, replicas, micro;
    uint32_t stage; // stage of ZeRO; matters with 2 shards and more
    bool fits;      // false: recomputation and smaller micro-batches have to save memory
    struct cn_auto_tightest tightest;
    struct cn_auto_tightest lower; // tightest in the stage below, with as many shards as members
    uint64_t micro_us;             // computing time of a micro-batch on the slowest member
    uint64_t wire_us;              // time to send the gradients of a step
};

// Chooses the layout.
// - Stage: the lowest, since it exchanges least, in which a step fits into the memory of every
//   member with some number of shards; 1 if no stage fits.
// - Shards: the fewest with which the step fits; numbers that leave no member over come first.
// - Micro-batches: the smallest power of two for which the transfer per step that is not hidden by
//   the backward pass takes at most a quarter of the computing time.
void cn_auto_layout_choose(const struct cn_auto_facts *facts, struct cn_auto_layout *layout);

// Writes the layout and the reasons for it, such as "1 replica of 2 shards, stage 2, 4
// micro-batches a step: ...". names[i] is the name of member i.
void cn_auto_layout_text(const struct cn_auto_layout *layout, const char *const *names, char *text,
                         size_t size);
