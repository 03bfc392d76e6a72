// session_plan_private.h - how the steps of a session are divided: who trains, in which layout,
// which part of the model each member holds, and what the members know of each other. Private to
// runtime/round/session.
#pragma once

#include "runtime/engine/graph/cut.h"
#include "runtime/group/ranks.h"
#include "runtime/profile/notation/set_rules.h"
#include "runtime/round/session/session.h"

// How a step is trained: decided alike on all members before the step (session_sets.c).
struct cn_step_plan {
    bool whole;          // every member trains
    bool trains;         // this board trains
    struct cn_set train; // members that train; unused if whole
    uint32_t micro;      // micro-batches of this board
    // Micro-batches of the boards before this one, by dp_rank (runtime/group/ranks.h).
    uint32_t before;
    uint32_t total;  // micro-batches of all boards
    uint32_t shards; // members that hold the model's state together; 1: each holds all of it
    // ZeRO stage: parts that the shards divide (runtime/engine/program/bucket_plan.h).
    uint32_t stage;
    uint32_t shard;               // index of this board's shard
    struct cn_set shard_set;      // members whose shares make up the whole state
    struct cn_set replica_set;    // members that hold the same share
    uint32_t place;               // place of this board among the members that train
    uint32_t seats[CN_GROUP_MAX]; // by place: index in the profile's list
    struct cn_chain_place chain;  // place in a pipeline; 0 parts: no chain trains
    // With own samples: number of earlier rounds that trained on those of the chain's first member.
    uint64_t turns;
    char names[128]; // names of the members that train, for people; "" if the job names no set
};

// Counts that add up over steps.
struct cn_session_counts {
    uint64_t samples, cursor;
    double train_loss;
};

// A step whose gradients are reduced over the group.
struct cn_reduced_step {
    uint64_t epoch; // epoch of the step; 0: no step
    uint32_t round, step;
    float votes[CN_STEP_VOTES]; // sums of the votes, for a step that was applied
};

// The messages of one kind of a chain: a ring of buffers, and the newest call that uses each.
struct cn_chain_lane {
    size_t words;          // words of a message; 0: none travels
    uint32_t count;        // number of buffers
    float *buffers;        // owned
    struct cn_work *works; // owned; by buffer
};

// Where the model is cut, and the part that this board's trainer holds (session_cut.c); zeros
// without a pipeline.
struct cn_session_cut {
    struct cn_cut at;
    uint32_t *holders; // owned; by tensor of the layout: parts that hold it
    uint32_t part;     // part that the trainer holds
    uint32_t micro;    // micro-batches of a chain in a step
    uint32_t slots;    // micro-batches for which the trainer has room between forward and backward
    uint32_t most;     // most of them that this board's memory allows; 0: as many as it may have
    size_t words[CN_CUT_PARTS_MAX - 1];     // by place: words of a sample that pass it both ways
    double work[CN_CUT_PARTS_MAX];          // by part: share of the model's work
    uint32_t readers[CN_GRAPH_INPUT_MAX];   // by input: parts that read it, bit p for part p
    size_t input_words[CN_GRAPH_INPUT_MAX]; // by input: words of a sample
    uint32_t input_count;
    size_t label_words; // of a sample, which the last part reads; 0: the labels are an input
};

// The layout that "parallel: auto" chose, as the leader tells it to all members; all 0 without.
struct cn_session_layout {
    uint32_t among; // bit per rank: those of which it was chosen
    uint32_t parts, replicas, shards, stage;
    uint32_t micro;                        // micro-batches a step for each member that trains
    uint32_t count;                        // members that train
    uint32_t ranks[CN_GROUP_MAX];          // by place (runtime/group/ranks.h)
    uint64_t places[CN_CUT_PARTS_MAX - 1]; // as those of a cut
    char why[CN_LAYOUT_TEXT];              // for people
};

// What all members know of each other in an epoch, and what follows from it.
struct cn_session_sets {
    struct cn_view view;
    struct cn_board_facts facts[CN_GROUP_MAX];     // facts by rank
    char addresses[CN_GROUP_MAX][CN_ADDRESS_SIZE]; // addresses by rank, as others know them
    struct cn_set_rules rules;
    bool by_step;                   // a rule that the job uses depends on the step
    uint64_t samples[CN_GROUP_MAX]; // number of training samples by rank
    uint32_t current;               // bit per rank that has the newest state
    uint32_t train;                 // bit per rank that trains; 0: undecided in this epoch
    uint32_t allowed;               // bit per rank that may train, including members left over
    uint32_t round;                 // round for which train was decided
    struct cn_session_layout layout;
    uint64_t micro_us; // measured time of a micro-batch; 0: not measured in this epoch
    double call_us;    // time of a message without bytes; 0: not measured, or not the leader
    double sum_share;  // share of the links' rate that a sum reaches; 0: as call_us
    // Of a chain that auto chose: its steps in this epoch, when it did the first (clock), and the
    // computing times by rank after some steps (session_replan.c).
    uint32_t steps;
    uint64_t formed_ms;
    double settled_ms[CN_GROUP_MAX];
    // Of any chain (session_waits.c): its steps in this epoch, the wait for messages and the
    // whole of a step after some of them, the newest steps that waited much longer, and what people
    // are told of it.
    uint32_t waits, slow_steps;
    double settled_wait_ms, settled_step_ms;
    bool slow_told; // the log has it
    char slow_link[CN_SLOW_LINK_TEXT];
};
