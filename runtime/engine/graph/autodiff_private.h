// autodiff_private.h - what the autodiff_*.c files share: a function for each op adds the nodes
// that compute the gradients of its inputs from the gradient of its first output.
#pragma once

#include "runtime/engine/graph/graph.h"

struct cn_autodiff {
    struct cn_graph *graph;
    bool *needed;        // by root: a parameter, or computed from one
    uint32_t *gradient;  // by root: the value that holds the gradient so far
    uint32_t *assembled; // by root: that value, if copies put it together and nobody else has it
    bool *written;       // by root of a parameter: some node has written its gradient
};

typedef cn_err cn_autodiff_fn(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy);

// False for CN_GRAPH_NONE and for what no trained parameter has a part in.
bool cn_autodiff_needs(const struct cn_autodiff *diff, uint32_t value);

// The value that holds the gradient of a parameter.
cn_err cn_autodiff_parameter(struct cn_autodiff *diff, uint32_t parameter, uint32_t *index);

// A new activation of the size of like.
cn_err cn_autodiff_activation(struct cn_autodiff *diff, uint32_t like, uint32_t *index);

// Records that part is a share of the gradient of an activation; shares add up.
cn_err cn_autodiff_share(struct cn_autodiff *diff, uint32_t activation, uint32_t part);

// Adds node as the maker of the gradient of target, which may be a parameter or an activation.
cn_err cn_autodiff_emit(struct cn_autodiff *diff, struct cn_node *node, uint32_t target);

// The same for a node with several outputs, at most CN_CALL_OUTPUTS; CN_GRAPH_NONE leaves one out.
cn_err cn_autodiff_emit_all(struct cn_autodiff *diff, struct cn_node *node, const uint32_t *targets,
                            size_t count);

// The same for a call that can only set its output.
cn_err cn_autodiff_emit_set(struct cn_autodiff *diff, struct cn_node *node, uint32_t target);

// Sets a value to 0 where that is still to be done, so that calls can add to it.
cn_err cn_autodiff_clear(struct cn_autodiff *diff, uint32_t value, enum cn_write write);

cn_err cn_autodiff_bias(struct cn_autodiff *diff, struct cn_bias bias, uint32_t dy,
                        uint32_t target);

// By family. _attention:
cn_autodiff_fn cn_autodiff_attention;

// _norm:
cn_autodiff_fn cn_autodiff_batch_norm, cn_autodiff_dropout;
cn_err cn_autodiff_statistics(struct cn_autodiff *diff);

// _maps:
cn_autodiff_fn cn_autodiff_maps, cn_autodiff_combine, cn_autodiff_sum;

// _moves:
cn_autodiff_fn cn_autodiff_copy, cn_autodiff_fill, cn_autodiff_gather;

// _rows:
cn_autodiff_fn cn_autodiff_products, cn_autodiff_softmax, cn_autodiff_norm;

// _planes and _recurrent:
cn_autodiff_fn cn_autodiff_conv_transpose, cn_autodiff_resize, cn_autodiff_extreme;
cn_autodiff_fn cn_autodiff_recurrent;

// Makes *dy zeros where only the cell after a recurrent layer's last step has a gradient.
cn_err cn_autodiff_recurrent_only_cell(struct cn_autodiff *diff, const struct cn_node *forward,
                                       uint32_t *dy);
