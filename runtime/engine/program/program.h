// program.h - a graph with places in memory, ready for the compute port.
#pragma once

#include "runtime/engine/graph/graph.h"

// The slots of an arena. They lie one after the other, after the words that all slots share.
struct cn_program_slot {
    size_t first, words; // words before the first slot; words of one slot, 0: there are no slots
};

struct cn_program {
    struct cn_call *calls; // owned
    size_t count;
    size_t loss;   // index of the last forward call
    bool has_loss; // that call is the loss
    size_t
        inputs[CN_GRAPH_INPUT_MAX + CN_GRAPH_FACT_MAX]; // places of the inputs, then the facts:
                                                        // words from the start of the batch arena
    size_t labels;                 // place of the labels: words from the start of the batch arena
    struct cn_compute_sizes sizes; // of all arenas
    struct cn_program_slot slots[CN_ARENA_COUNT]; // zeros when the graph runs as one list
};

// Plans the memory of a whole graph for batches of at most batch samples on a device, and resolves
// all operands. total is the number of words of the layout. Takes no memory on the device.
// CN_ENOTSUP when the device lacks an op; CN_ENOMEM, also when sizes overflow.
//
// With slots 0 all calls are run as one list. Otherwise the forward and the backward calls are run
// apart, and this many micro-batches may be between the two: each has a slot for its batch, for the
// boundary values and for what its backward calls read. The operands are those of slot 0.
cn_err cn_program_build(const struct cn_graph *graph, const struct cn_compute_ops *ops,
                        const struct cn_compute *device, uint32_t batch, uint32_t slots,
                        size_t total, struct cn_program *program);

// Copies count calls of the program, moved from slot 0 to this slot.
void cn_program_move(const struct cn_program *program, const struct cn_call *calls, size_t count,
                     uint32_t slot, struct cn_call *moved);
void cn_program_deinit(struct cn_program *program);

// Turns the calls up to the loss into the calls of an evaluation, in the same places: no gradient,
// running statistics, no Dropout. The calls after the loss are left as they are.
void cn_program_evaluate(struct cn_program *program);

// Returns the bytes that a device with this number of lanes takes for the program. CN_ENOMEM when
// they overflow.
cn_err cn_program_memory(const struct cn_program *program, uint32_t lanes, uint64_t *bytes);
