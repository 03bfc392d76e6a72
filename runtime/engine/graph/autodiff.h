// autodiff.h - adds the backward pass to a graph that has its loss.
#pragma once

#include "runtime/engine/graph/graph.h"

// Adds the nodes that compute the gradient of every parameter that the loss depends on, and no
// other gradients.
cn_err cn_autodiff_run(struct cn_graph *graph);
