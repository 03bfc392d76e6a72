// progress.h - where the training of a board is, for status, hooks and people. Nothing is decided
// by it.
#pragma once

#include "runtime/port/collective.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/upkeep/slow_reason.h"

// How good a version is, on held-out samples. NAN: not measured, or not a measure of this loss.
struct cn_scores {
    uint32_t version;
    uint64_t rows; // samples, or the labels that count, that it was measured on; 0: not at all
    double loss;   // mean
    double accuracy, top5, f1; // shares; f1: mean over the classes
    double mae;                // mean absolute error
    double perplexity;         // of each token
};

#define CN_LAYOUT_TEXT 400

// Where the time of a step goes: moving averages of this epoch, in milliseconds.
struct cn_step_split {
    double compute_ms;
    double wait_ms;                    // for the member that computes longest
    double wire_ms;                    // for what is left of the reductions then
    double member_ms[CN_GROUP_MAX];    // by rank: how long each computes
    struct cn_slow slow[CN_GROUP_MAX]; // by rank: why it may be slow, as of the last step
};

struct cn_progress {
    enum cn_phase phase;
    uint32_t round, step, version;
    uint32_t lineage; // of the version; 0: none is held
    uint32_t steps;   // of the round
    uint64_t epoch, resets;
    uint32_t rank, size; // of the group; size 0 while it forms
    bool ended;
    const char *backend;         // "tcp", "nccl": what large sums travel over; NULL while it forms
    char backend_why[160];       // why not over the faster one that is wanted; "": it is used
    bool encrypted;              // what they travel over
    char train[128];             // members that train; "" where the job names no sets
    char layout[CN_LAYOUT_TEXT]; // what "parallel: auto" chose, and why; "" without it
    struct cn_scores scores;
    double step_ms;       // of a local step, a moving average; 0: not measured
    double samples_per_s; // of this board
    struct cn_step_split split;
    uint32_t slowest; // member that computes clearly longer than others; UINT32_MAX: none
    double slowest_ms, usual_ms; // for a micro-batch: its time, and the mean of the others'
    struct cn_slow slowest_why;
    uint32_t slowest_micro, total_micro; // its micro-batches of a step, of so many
    uint64_t memory;                     // bytes planned for training
    uint64_t arriving_memory;            // of memory: for a version of the model that arrives
    uint64_t update_bytes, dense_bytes;  // the newest update as it was sent, and as float32
};
