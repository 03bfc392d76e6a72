// autodiff_private.h - what the autodiff_*.c files share.
//
// There is one function for each op. It adds the nodes that compute the gradients of the op's
// inputs from the gradient of its first output. Arrays by root are indexed by cn_graph_root.
#pragma once

#include "runtime/engine/graph/graph.h"

struct cn_autodiff {
    struct cn_graph *graph;
    bool *needed;        // by root: a parameter, or computed from one
    uint32_t *gradient;  // by root: the value that holds the gradient so far; CN_GRAPH_NONE: none
    uint32_t *assembled; // by root: the gradient after a copy added its piece; while it still is
                         // the gradient, the next copy adds to it in place
    bool *written;       // by root of a parameter: some node has written its gradient
};

// Adds the gradients of an op; dy is the gradient of its first output.
typedef cn_err cn_autodiff_fn(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy);

// Returns whether a value needs a gradient: false for CN_GRAPH_NONE and for values computed from no
// trained parameter.
bool cn_autodiff_needs(const struct cn_autodiff *diff, uint32_t value);

// Returns the value that holds the gradient of a parameter; adds it at the first call.
cn_err cn_autodiff_parameter(struct cn_autodiff *diff, uint32_t parameter, uint32_t *index);

// Adds an activation with the dims of like.
cn_err cn_autodiff_activation(struct cn_autodiff *diff, uint32_t like, uint32_t *index);

// Records part as one summand of the gradient of an activation.
cn_err cn_autodiff_share(struct cn_autodiff *diff, uint32_t activation, uint32_t part);

// Adds node, whose output becomes the gradient of target or a summand of it. target is a parameter
// or an activation.
cn_err cn_autodiff_emit(struct cn_autodiff *diff, struct cn_node *node, uint32_t target);

// As cn_autodiff_emit, for a node with several outputs, at most CN_CALL_OUTPUTS. A target of
// CN_GRAPH_NONE leaves that output out.
cn_err cn_autodiff_emit_all(struct cn_autodiff *diff, struct cn_node *node, const uint32_t *targets,
                            size_t count);

// As cn_autodiff_emit, for a call that can only set its output, not add to it.
cn_err cn_autodiff_emit_set(struct cn_autodiff *diff, struct cn_node *node, uint32_t target);

// Adds the node that sets a value to 0, so that calls can add to it. With CN_WRITE_ADD adds none.
cn_err cn_autodiff_clear(struct cn_autodiff *diff, uint32_t value, enum cn_write write);

// Adds the node that sums dy to the gradient of a bias.
cn_err cn_autodiff_bias(struct cn_autodiff *diff, struct cn_bias bias, uint32_t dy,
                        uint32_t target);

// The functions of the ops, by file. autodiff_attention.c:
cn_autodiff_fn cn_autodiff_attention;

// autodiff_norm.c. cn_autodiff_statistics adds the gradients of running statistics:
cn_autodiff_fn cn_autodiff_batch_norm, cn_autodiff_dropout;
cn_err cn_autodiff_statistics(struct cn_autodiff *diff);

// autodiff_maps.c:
cn_autodiff_fn cn_autodiff_maps, cn_autodiff_combine, cn_autodiff_sum;

// autodiff_moves.c:
cn_autodiff_fn cn_autodiff_copy, cn_autodiff_fill, cn_autodiff_gather;

// autodiff_rows.c:
cn_autodiff_fn cn_autodiff_products, cn_autodiff_softmax, cn_autodiff_norm;

// autodiff_planes.c and autodiff_recurrent.c:
cn_autodiff_fn cn_autodiff_conv_transpose, cn_autodiff_resize, cn_autodiff_extreme;
cn_autodiff_fn cn_autodiff_recurrent;

// Makes *dy a value of zeros where only a recurrent layer's last cell has a gradient.
cn_err cn_autodiff_recurrent_only_cell(struct cn_autodiff *diff, const struct cn_node *forward,
                                       uint32_t *dy);
