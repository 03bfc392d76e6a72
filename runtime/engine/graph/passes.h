// passes.h - rewrites of the forward graph before its gradient is made.
#pragma once

#include "runtime/engine/graph/graph.h"

// Drops nodes that the output does not need, lets a product add the bias that follows it, and lets
// a product or convolution do the ReLU that follows it.
cn_err cn_passes_run(struct cn_graph *graph);
