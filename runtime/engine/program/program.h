// program.h - a graph with places in memory: what the compute port runs.
#pragma once

#include "runtime/engine/graph/graph.h"

struct cn_program {
    struct cn_call *calls; // owned
    size_t count;
    size_t loss; // index of the loss call; calls up to it are the forward pass
    size_t inputs[CN_GRAPH_INPUT_MAX + CN_GRAPH_FACT_MAX]; // words from the start of the batch
                                                           // arena; facts come after the inputs
    size_t labels;                                         // the same
    struct cn_compute_sizes sizes;
};

// Plans the memory of a whole graph for batches of at most batch samples on a device, and resolves
// all operands. total is the words of the layout. CN_ENOTSUP when the device lacks an op.
cn_err cn_program_build(const struct cn_graph *graph, const struct cn_compute_ops *ops,
                        const struct cn_compute *device, uint32_t batch, size_t total,
                        struct cn_program *program);
void cn_program_deinit(struct cn_program *program);

// Turns the calls up to the loss, in the same places, into those of an evaluation: no gradient, the
// running statistics, nothing dropped.
void cn_program_evaluate(struct cn_program *program);

// Bytes that a device with that many lanes takes for it.
cn_err cn_program_memory(const struct cn_program *program, uint32_t lanes, uint64_t *bytes);
