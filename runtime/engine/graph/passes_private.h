// passes_private.h - what the passes_*.c files share: who makes and who reads each value.
#pragma once

#include "runtime/engine/graph/graph.h"

// Found anew after nodes were dropped. A fusion may add values: there is room for two of each node.
struct passes {
    struct cn_graph *graph;
    uint32_t *uses;  // by root
    uint32_t *maker; // by root: the node whose out[0] it is
    cn_err err;      // the first one
};

// The node that makes value, when value has no other reader and no other name.
struct cn_node *cn_passes_sole_maker(const struct passes *passes, uint32_t value);

// Takes a node out of every count; it is let go, for nobody reads what it makes: unread.
void cn_passes_disconnect(struct cn_node *node, uint32_t unread);

// Lets maker write what node wrote.
void cn_passes_take_over(struct passes *passes, struct cn_node *maker, struct cn_node *node);

// A fusion looks at a node whose index it is given.
typedef void cn_passes_fn(struct passes *passes, size_t index);

// passes_attention.c: a product with the softmax of a product; then the copy behind it.
cn_passes_fn cn_passes_attention, cn_passes_attention_result;
