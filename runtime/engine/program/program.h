// program.h - a graph with places in memory, ready for the compute port.
#pragma once

#include "runtime/engine/graph/graph.h"

struct cn_program {
    struct cn_call *calls; // owned
    size_t count;
    size_t loss; // index of the loss call; calls up to it are the forward pass
    size_t
        inputs[CN_GRAPH_INPUT_MAX + CN_GRAPH_FACT_MAX]; // places of the inputs, then the facts:
                                                        // words from the start of the batch arena
    size_t labels;                 // place of the labels: words from the start of the batch arena
    struct cn_compute_sizes sizes; // of all arenas
};

// Plans the memory of a whole graph for batches of at most batch samples on a device, and resolves
// all operands. total is the number of words of the layout. Takes no memory on the device.
// CN_ENOTSUP when the device lacks an op; CN_ENOMEM, also when sizes overflow.
cn_err cn_program_build(const struct cn_graph *graph, const struct cn_compute_ops *ops,
                        const struct cn_compute *device, uint32_t batch, size_t total,
                        struct cn_program *program);
void cn_program_deinit(struct cn_program *program);

// Turns the calls up to the loss into the calls of an evaluation, in the same places: no gradient,
// running statistics, no Dropout. The calls after the loss are left as they are.
void cn_program_evaluate(struct cn_program *program);

// Returns the bytes that a device with this number of lanes takes for the program.
cn_err cn_program_memory(const struct cn_program *program, uint32_t lanes, uint64_t *bytes);
