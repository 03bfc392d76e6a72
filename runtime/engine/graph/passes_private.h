// passes_private.h - what the passes_*.c files share: the maker and the readers of each value.
#pragma once

#include "runtime/engine/graph/graph.h"

// The makers and readers of values, found again after nodes were dropped. The arrays have room for
// the values that fusions add, two for each node.
struct passes {
    struct cn_graph *graph;
    uint32_t *uses;  // by root: number of reads
    uint32_t *maker; // by root: index of the node whose out[0] it is; CN_GRAPH_NONE: none
    cn_err err;      // the first error of a fusion
};

// Returns the node that makes value: the last one that writes its memory. NULL when there is none,
// or when that memory is not read exactly once, counting the reads of all values that share it.
struct cn_node *cn_passes_sole_maker(const struct passes *passes, uint32_t value);

// Removes the operands of a node that is no longer needed. unread, a value without readers, becomes
// its output, so that it is dropped.
void cn_passes_disconnect(struct cn_node *node, uint32_t unread);

// Makes maker write the output of node, and disconnects node.
void cn_passes_take_over(struct passes *passes, struct cn_node *maker, struct cn_node *node);

// A fusion: merges the node of this index with its neighbours where it can.
typedef void cn_passes_fn(struct passes *passes, size_t index);

// passes_attention.c: merges softmax(q k') v into one call; then lets it write through the copy
// after it.
cn_passes_fn cn_passes_attention, cn_passes_attention_result;
