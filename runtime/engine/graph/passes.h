// passes.h - rewrites the forward graph before its gradient is added.
#pragma once

#include "runtime/engine/graph/graph.h"

// Drops nodes that the output does not need, and merges nodes into one call: a product with the
// bias after it; a product, convolution or batch normalization with the ReLU after it; a batch
// normalization with the residual that is added to it; the nodes of a GELU; the nodes of an
// attention. Drops constants that nothing reads any more. CN_ENOMEM, or CN_ERANGE (graph.h).
cn_err cn_passes_run(struct cn_graph *graph);
