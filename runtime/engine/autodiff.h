// autodiff.h - adds the loss and the backward pass to a graph.
#pragma once

#include "runtime/engine/graph.h"
#include "runtime/profile/job.h"

// Adds the labels and the loss node, whose gradient output is the start of the backward pass.
cn_err cn_autodiff_loss(struct cn_graph *graph, enum cn_loss loss);

// Adds the nodes that compute the gradient of every parameter the loss depends on, and no others.
cn_err cn_autodiff_run(struct cn_graph *graph);
