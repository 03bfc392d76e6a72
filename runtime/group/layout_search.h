// layout_search.h - finds the quickest layout that fits: pipelines, shards and replicas.
//
// It tries all numbers of parts and shards, each with as many replicas as the members are enough
// for, the stages of ZeRO where the model is not cut, the cuts (cut_search.h), the orders of unlike
// boards, and 1, 2, 4, ... times the micro-batches that the job wants. One member searches and
// tells the others, so it does no harm if their times differ by a bit. Threading: none; pure.
#pragma once

#include "runtime/group/layout_cost.h"

#define CN_LAYOUT_MICRO 16 // most micro-batches of a member in a step, unless the job wants more
#define CN_LAYOUT_CANDIDATES 64 // for each number of parts one, of shards one in each stage

// The member with the least memory to spare, or the largest lack of memory.
struct cn_layout_tightest {
    uint32_t member;
    uint64_t has;   // its limit in bytes; 0: no member has a limit
    uint64_t needs; // bytes
};

struct cn_layout_candidate {
    uint32_t parts;            // parts of a chain; 1: the model is not cut
    uint32_t replicas, shards; // replicas of parts or of shards; shards is 1 with several parts
    uint32_t stage;            // stage of ZeRO; matters with 2 shards and more
    uint32_t micro;            // micro-batches a step for each member; a chain has parts times that
    uint32_t members[CN_GROUP_MAX];         // by place (ranks.h): index of the member
    uint32_t places[CN_PIPELINE_PARTS_MAX]; // by part: index of the place at its end
    double step_us;                         // predicted
    double part_us[CN_PIPELINE_PARTS_MAX];  // by part: computing time of a micro-batch
    double busy_us;                         // computing time of a step on the slowest member
    struct cn_layout_tightest tightest;     // member with the least memory to spare
    uint64_t missing;                       // bytes that it lacks; 0: the layout fits
};

struct cn_layout_search {
    uint32_t count;
    uint32_t best, second; // second: the next best; count: there is none
    struct cn_layout_candidate candidates[CN_LAYOUT_CANDIDATES]; // of the chosen micro-batches
};

// Finds the layout with the most micro-batches a second. Of layouts within 3 % of it the simplest
// is best: fewest parts, lowest stage, most replicas, since it recovers fastest. A step has the
// fewest micro-batches for which members wait at most a quarter of their computing time. If nothing
// fits, best is a whole model in stage 1 with the most shards, which can compute twice or in parts;
// if no share fits, the layout that lacks the least memory. facts has at least one member;
// micro-batches of 0 count as 1.
void cn_layout_search(const struct cn_layout_facts *facts, struct cn_layout_search *search);

// Returns the micro-batches of all members in a second.
double cn_layout_rate(const struct cn_layout_candidate *candidate);

// Predicts a candidate's step again with other facts, such as boards that have become hot.
double cn_layout_predict(const struct cn_layout_facts *facts,
                         struct cn_layout_candidate *candidate);
