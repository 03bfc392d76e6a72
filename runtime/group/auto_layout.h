// auto_layout.h - "parallel: auto": stage, shards, replicas and micro-batches of a step, from
// facts.
//
// Every member decides it by itself from the same facts, in exact integers and one order of
// float64 operations, so all come to the same. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/collective.h"

#define CN_AUTO_STAGES 3
#define CN_AUTO_MICRO 16 // micro-batches of a member in a step, at most, unless the job wants more

struct cn_auto_member {
    uint64_t limit; // bytes that training may take; 0: not known
    // Of a step in each stage of ZeRO, nothing computed twice: bytes on each member, and those of
    // which it has a share.
    struct cn_auto_need {
        uint64_t whole, shared;
    } needs[CN_AUTO_STAGES];
    uint64_t micro_us; // for a micro-batch
};

struct cn_auto_facts {
    uint32_t count; // members that may train
    struct cn_auto_member members[CN_GROUP_MAX];
    uint64_t gradients; // bytes
    uint64_t link_kbps; // of the slowest; 0: not measured
    uint32_t micro;     // micro-batches that the job wants at least
};

// A member with the least to spare, or most too much.
struct cn_auto_tightest {
    uint32_t member;
    uint64_t has; // its limit; 0: none has one
    uint64_t needs;
};

struct cn_auto_layout {
    uint32_t shards, replicas, micro;
    uint32_t stage; // of ZeRO, where there are shards
    bool fits;      // else memory is saved by computing twice and smaller micro-batches
    struct cn_auto_tightest tightest;
    struct cn_auto_tightest lower; // of the stage below with as many shards as members
    uint64_t micro_us;             // of the slowest member
    uint64_t wire_us;              // for the gradients of a step
};

// Stage: the lowest, since it exchanges least, in which a step fits into the memory of every member
// with some number of shards; 1 where none is enough. Shards: the fewest with which it does, rather
// such that nobody is left over. Micro-batches: the fewest, in powers of two, with which what the
// wire takes once a step, beside the backward pass, is at most a quarter of the computing.
void cn_auto_layout_choose(const struct cn_auto_facts *facts, struct cn_auto_layout *layout);

// "1 replica of 2 shards, stage 2, 4 micro-batches a step: ..." and why; names are those of the
// members.
void cn_auto_layout_text(const struct cn_auto_layout *layout, const char *const *names, char *text,
                         size_t size);
