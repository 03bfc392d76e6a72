// autodiff.h - adds the backward pass to a graph that has its loss.
#pragma once

#include "runtime/engine/graph/graph.h"

// Adds the nodes that compute the gradient of every parameter that the loss depends on, and only
// the other gradients that these need. CN_ENOMEM, or CN_ERANGE (graph.h).
cn_err cn_autodiff_run(struct cn_graph *graph);
