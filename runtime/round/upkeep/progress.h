// progress.h - the state of a board's training, for status, hooks and people. The worker decides
// nothing by it; the node does, about keys, pauses, the end and a state to give up.
#pragma once

#include "runtime/group/pipeline_order.h"
#include "runtime/port/collective.h"
#include "runtime/port/link.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/upkeep/slow_reason.h"

// Quality of a version on held-out samples. NAN: not measured, or not defined for this loss.
struct cn_scores {
    uint32_t version;
    uint64_t rows;             // samples, or labels that count, that were measured; 0: not measured
    double loss;               // mean loss
    double accuracy, top5, f1; // shares; f1 is the mean over the classes
    double mae;                // mean absolute error
    double perplexity;         // per token
};

#define CN_LAYOUT_TEXT 640

// The parts of a step's time: moving averages of this epoch, in milliseconds.
struct cn_step_split {
    double compute_ms;
    double wait_ms;                    // waiting for the member that computes longest
    double wire_ms;                    // finishing the reductions after that
    double voted_ms;                   // from the start of the step until all have voted
    double member_ms[CN_GROUP_MAX];    // computing time by rank
    struct cn_slow slow[CN_GROUP_MAX]; // by rank: why the member may be slow, as of the last step
};

#define CN_SLOW_LINK_TEXT 240 // bytes

// A model that is cut into parts.
struct cn_chain_progress {
    uint32_t parts;                 // 0: this board is in no chain
    uint32_t part, chain, chains;   // part and chain from 0; number of chains
    uint32_t shard, shards;         // share of the part from 0; members that hold it together
    uint32_t micro, slots;          // micro-batches of a step; most that are in flight here
    double bubble;                  // share of a step in which equal parts rest
    double bubble_parts;            // the same for parts of the measured times; 0: not measured
    double bubble_measured;         // share of a step, until the vote, without passes
    uint32_t slowest_part, slowest; // the part that computes longest; its member
    double slowest_ms;              // its time in a step; 0: not measured
    uint64_t bytes[CN_PIPELINE_PARTS_MAX]; // by cut: bytes that pass it in a step, both ways
    char slow_link[CN_SLOW_LINK_TEXT];     // how long members wait for messages; "": not too long
};

struct cn_progress {
    enum cn_phase phase;
    uint64_t run;
    uint32_t round, step, version;
    uint8_t base_digest[CN_DIGEST_SIZE]; // of the version
    uint32_t lineage;                    // lineage of the version; 0: the board holds none
    uint32_t steps;                      // steps of the round
    uint64_t epoch, resets;
    uint32_t rank, size; // this board's rank and the size of the group; size 0 while it forms
    bool ended;
    bool looks_on;         // it trains in no set of the round, but follows it
    const char *backend;   // transport of large sums: "tcp" or "nccl"; NULL while the group forms
    char backend_why[160]; // why the faster transport that was wanted is not used; "": it is
    bool encrypted;        // the transport is encrypted
    char train[128];       // members that train; "" when the job names no sets
    char layout[CN_LAYOUT_TEXT];     // the choice of "parallel: auto" and its reason; "" without it
    char hindered[CN_FAULT_SIZE];    // why this board does not train in this epoch; "": it may
    char needs[CN_HEALTH_REST_SIZE]; // members that it waits for, because none can train; ""
    struct cn_scores scores;
    double step_ms;       // moving average of a local step; 0: not measured
    double samples_per_s; // samples of this board per second
    uint64_t samples;     // of the job's data set that this board trains on; 0: not opened
    struct cn_step_split split;
    struct cn_chain_progress chain;
    uint32_t slowest; // member that computes clearly longer than the others; UINT32_MAX: none
    double slowest_ms, usual_ms; // its time for a micro-batch, and the others' mean
    struct cn_slow slowest_why;
    uint32_t slowest_micro, total_micro; // its micro-batches of a step, and those of all members
    uint64_t memory;                     // bytes planned for training
    uint64_t copies_memory;              // of memory: for copies of the model beside the trainer
    uint64_t update_bytes, dense_bytes;  // size of the newest update as sent, and as float32
};

// Returns whether the board trains nothing in its group, since something or somebody is missing.
static inline bool cn_progress_waits(const struct cn_progress *progress)
{
    return progress->needs[0] || progress->hindered[0];
}
